// The recorder from record to result on a plugin, whose path is on the command line; skipped
// without.
#include "runtime/runtime.h"

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/settings.h"
#include "base/test.h"
#include "trace/strided.h"

namespace tpu::runtime {
namespace {

using ops::Context;
using ops::Number;
using ops::Scalar;
using trace::CallKey;
using trace::Dims;
using trace::DType;
using trace::Type;
using trace::ValuePtr;

constexpr int64_t kLimit = int64_t{64} << 20;

Runtime& runtime() {
  if (test::args().empty()) SKIP("no plugin path was given");
  [[maybe_unused]] static const bool ready = [] {
    settings().set("plugin", test::args()[0]);
    settings().set("disk_cache", "0");
    settings().set("cpu_device_count", "2");
    settings().set("memory_limit", std::to_string(kLimit));
    ops::Registry& r = ops::Registry::instance();
    trace::register_views(r);
    r.op("test::add", [](Context& x, ops::Value a, ops::Value b) { return x.b.add(a, b); });
    r.op("test::scale",
         [](Context& x, ops::Value a, Scalar s) { return x.b.mul(a, x.scalar_like(s, a)); });
    r.op("test::grow", [](Context& x, ops::Value a, int64_t n) {
      return x.broadcast(x.b.reshape(a, {1, a.numel()}), {n, a.numel()});
    });
    r.op("test::unknown", [](Context& x, ops::Value a) {
      return x.b.custom_call("no_such_target", {a}, {a.type()})[0];
    });
    r.op("test::pick", [](Context& x, ops::Value a, ops::Value i) {
      return x.b.add(a, x.b.convert(x.checked_index(i, 5, 0), a.dtype()));
    });
    return true;
  }();
  return Runtime::get();
}

struct Fused {
  Fused() { push_mode(Mode::kFused); }
  ~Fused() { pop_mode(); }
};

const Type* f32(Dims d) { return trace::intern({DType::kF32, std::move(d)}); }

CallKey key_of(const char* op) {
  const ops::OpDef* d = ops::Registry::instance().find(op);
  TPU_CHECK(d, "no op is called ", op);
  return CallKey(d->id, {});
}

// All arguments are tensors, then Scalars, then what `more` adds.
template <class F>
ValuePtr call(Device& d, const char* op, std::vector<ValuePtr> in, std::vector<Number> numbers,
              F more) {
  Runtime& r = runtime();
  CallKey k = key_of(op);
  for (const ValuePtr& v : in) k.tensor(v->type);
  more(k);
  for (const Number& n : numbers) k.scalar(n.kind);
  k.layout(nullptr, 0);
  ValuePtr out;
  d.window.record(r.instances().get(k.view()), in, numbers, {}, {}, &out);
  r.after_record(d);
  return out;
}
ValuePtr call(Device& d, const char* op, std::vector<ValuePtr> in,
              std::vector<Number> numbers = {}) {
  return call(d, op, std::move(in), std::move(numbers), [](CallKey&) {});
}

template <class T>
ValuePtr upload(Device& d, const std::vector<T>& x, const Type* t) {
  return runtime().upload(d, x.data(), t);
}
ValuePtr upload(Device& d, const std::vector<float>& x) {
  return upload(d, x, f32({static_cast<int64_t>(x.size())}));
}

template <class T = float>
std::vector<T> download(const ValuePtr& v) {
  Runtime& r = runtime();
  {
    std::lock_guard lock(r.mutex());
    r.make_ready(v, FlushReason::kRead);
  }
  std::vector<T> x(static_cast<size_t>(v->type->numel()));
  r.download(v, x.data(), static_cast<int64_t>(x.size() * sizeof(T)));
  return x;
}

TEST(starts_with_the_devices_asked_for) {
  Runtime& r = runtime();
  EXPECT_EQ(r.devices(), 2);
  EXPECT_TRUE(Runtime::started());
  EXPECT_EQ(r.device(1).total_memory_bytes, kLimit);
  EXPECT_TRUE(r.plugin().kind == PluginKind::kCustom);
}

TEST(fused_chains_are_one_launch_from_the_second_time_on) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  const Fused fused;
  for (int round = 0; round < 4; ++round) {
    const double s = round % 2 == 0 ? 2.0 : 3.0;
    const int64_t executes = counters().executes, compiles = counters().compiles;
    ValuePtr x = upload(d, {1, 2, 3});
    for (int i = 0; i < 10; ++i)
      x = call(d, "test::scale", {call(d, "test::add", {x, x})}, {Number::of(s / 2)});
    const auto got = download(x);
    EXPECT_EQ(counters().executes, executes + (round == 0 ? 20 : 1));
    // Another number compiles nothing: at first the two ops, then the whole.
    EXPECT_EQ(counters().compiles, compiles + (round == 0 ? 2 : round == 1 ? 1 : 0));
    EXPECT_EQ(got[2], s == 2.0 ? 3 * 1024.0f : 3 * 59049.0f);
  }
}

TEST(in_place_updates_take_no_more_memory) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  push_mode(Mode::kStrict);
  ValuePtr x = upload(d, std::vector<float>(1 << 20, 1.0f));
  const ValuePtr one = upload(d, std::vector<float>(1 << 20, 1.0f));
  r.wait(d);
  d.memory.reset_peak();
  const int64_t before = d.memory.current_bytes;
  for (int i = 0; i < 20; ++i) {
    // As an in-place op: the operand is given up before the flush. Here the window holds the only
    // reference.
    CallKey k = key_of("test::add");
    k.tensor(x->type), k.tensor(x->type);
    k.layout(nullptr, 0);
    ValuePtr out;
    std::vector<ValuePtr> in = {std::move(x), one};
    d.window.record(r.instances().get(k.view()), in, {}, {}, {}, &out);
    in.clear();
    r.after_record(d);
    x = std::move(out);
  }
  pop_mode();
  EXPECT_EQ(download(x)[77], 21.0f);
  EXPECT_EQ(d.memory.current_bytes.load(), before);
}

TEST(nothing_is_donated_while_it_is_held) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  push_mode(Mode::kStrict);
  const ValuePtr x = upload(d, {1, 2, 3});
  const ValuePtr y = call(d, "test::add", {x, x});
  pop_mode();
  EXPECT_TRUE(download(x) == (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(download(y) == (std::vector<float>{2, 4, 6}));
}

TEST(a_failed_program_leaves_the_device_usable) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  const Fused fused;
  const ValuePtr x = upload(d, {1, 2, 3});
  const ValuePtr bad = call(d, "test::unknown", {call(d, "test::add", {x, x})});
  const ValuePtr also = call(d, "test::add", {x, x});
  std::string text;
  try {
    download(bad);
  } catch (const Error& e) {
    text = e.text;
  }
  EXPECT_TRUE(text.find("no_such_target") != std::string::npos);
  EXPECT_TRUE(text.find("3 deferred ops") != std::string::npos);
  EXPECT_TRUE(text.find("because of: read") != std::string::npos);
  EXPECT_TRUE(text.find("in test::unknown(float32[3])") != std::string::npos);
  // Only what must fail has failed, and says so as often as it is asked.
  EXPECT_TRUE(download(also) == (std::vector<float>{2, 4, 6}));
  EXPECT_THROW_MSG(download(bad), "no_such_target");
  EXPECT_TRUE(d.window.empty());
  EXPECT_TRUE(download(call(d, "test::add", {x, x})) == (std::vector<float>{2, 4, 6}));
}

TEST(out_of_memory_is_told_before_the_launch) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  const Fused fused;
  const int64_t ooms = d.memory.ooms;
  const ValuePtr large = upload(d, std::vector<float>(1 << 18, 1.0f), f32({1 << 18}));
  const ValuePtr small = upload(d, {1, 2, 3});
  const ValuePtr huge =
      call(d, "test::grow", {large}, {}, [](CallKey& k) { k.attr(int64_t{100}); });
  std::string text;
  try {
    download(huge);
  } catch (const Error& e) {
    EXPECT_TRUE(e.kind == ErrorKind::kMemory);
    text = e.text;
  }
  for (const char* part : {"out of memory on tpu:0", "needs 100", "of 64", "are free",
                           "test::grow(float32[262144])"}) {
    if (text.find(part) == std::string::npos)
      test::report(__FILE__, __LINE__, cat("no \"", part, "\" in ", text));
  }
  EXPECT_EQ(d.memory.ooms.load(), ooms + 1);
  EXPECT_THROW_MSG(upload(d, std::vector<float>(17 << 20)), "a copy needs 68");
  EXPECT_TRUE(download(call(d, "test::add", {small, small})) == (std::vector<float>{2, 4, 6}));
}

TEST(broken_indices_are_told_at_the_next_wait_once) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  const Fused fused;
  const ValuePtr x = upload(d, {1, 2, 3});
  const std::vector<int64_t> indices{1, 9, 2};
  const ValuePtr i = upload(d, indices, trace::intern({DType::kI64, {3}}));
  const ValuePtr bad = call(d, "test::pick", {x, i});
  try {
    download(bad);
    test::report(__FILE__, __LINE__, "no error");
  } catch (const Error& e) {
    EXPECT_TRUE(e.kind == ErrorKind::kIndex);
    EXPECT_EQ(e.text.substr(0, 61), "index 9 is out of bounds for dimension 0 with size 5");
  }
  r.wait(d);
  EXPECT_TRUE(download(x) == (std::vector<float>{1, 2, 3}));
}

TEST(markers_end_after_the_work_before_them) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  push_mode(Mode::kStrict);
  ValuePtr x = upload(d, std::vector<float>(1 << 20, 1.0f));
  const auto start = r.mark(d, true);
  for (int i = 0; i < 50; ++i) x = call(d, "test::add", {x, x});
  const auto middle = r.mark(d, true);
  for (int i = 0; i < 50; ++i) x = call(d, "test::add", {x, x});
  const auto end = r.mark(d, true);
  pop_mode();
  end->wait();
  EXPECT_TRUE(start->done() && middle->done() && end->done());
  // The stamp is made by a callback, perhaps a moment after the event.
  for (int i = 0; i < 1000 && !(start->time() && middle->time() && end->time()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(*start->time() <= *middle->time());
  EXPECT_TRUE(*middle->time() <= *end->time());
  r.wait(d);
  EXPECT_TRUE(d.launches.pending().empty());
  const auto idle = r.mark(d, true);
  EXPECT_TRUE(idle->done() && idle->time());
  EXPECT_TRUE(!r.mark(d, false)->time());
}

TEST(work_under_way_is_bounded) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  push_mode(Mode::kStrict);
  ValuePtr x = upload(d, std::vector<float>(1 << 20, 1.0f));
  size_t most = 0;
  for (int i = 0; i < 300; ++i) {
    x = call(d, "test::add", {x, x});
    most = std::max(most, d.launches.pending().size());
  }
  pop_mode();
  EXPECT_TRUE(most <= 65);
  r.wait(d);
}

TEST(devices_have_windows_of_their_own) {
  Runtime& r = runtime();
  const Fused fused;
  Device &a = r.device(0), &b = r.device(1);
  const ValuePtr x = upload(a, {1, 2, 3}), y = upload(b, {10, 20, 30});
  const ValuePtr p = call(a, "test::add", {x, x}), q = call(b, "test::add", {y, y});
  EXPECT_TRUE(download(q) == (std::vector<float>{20, 40, 60}));
  EXPECT_TRUE(p->state == trace::Value::State::kPending);
  EXPECT_TRUE(download(p) == (std::vector<float>{2, 4, 6}));
  const ValuePtr moved = r.copy_to(b, p);
  EXPECT_EQ(moved->device, 1);
  EXPECT_TRUE(download(call(b, "test::add", {moved, y})) == (std::vector<float>{12, 24, 36}));
}

TEST(threads_record_side_by_side) {
  Runtime& r = runtime();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Fused fused;
      Device& d = r.device(t % 2);
      for (int i = 0; i < 20; ++i) {
        ValuePtr x;
        {
          std::lock_guard lock(r.mutex());
          x = upload(d, {static_cast<float>(t), static_cast<float>(i)});
          for (int k = 0; k < 3; ++k) x = call(d, "test::add", {x, x});
        }
        wrong += download(x) !=
                 std::vector<float>{8.0f * static_cast<float>(t), 8.0f * static_cast<float>(i)};
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// ---- Views as programs: reads and writes of random strides against index arithmetic.

struct View {
  Dims sizes, strides;
  int64_t offset = 0;
};

template <class F>
void each(const View& v, F f) {
  const int64_t n = hlo::product(v.sizes);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, flat = v.offset;
    for (size_t d = v.sizes.size(); d-- > 0;) {
      flat += rest % v.sizes[d] * v.strides[d];
      rest /= v.sizes[d];
    }
    f(static_cast<size_t>(i), static_cast<size_t>(flat));
  }
}

ValuePtr view_call(Device& d, const View& v, const Type* base, std::vector<ValuePtr> in) {
  const trace::StridedPlan p = trace::plan_view(base->dims, v.sizes, v.strides, v.offset);
  const bool writes = in.size() == 2;
  std::vector<Number> starts;
  if (p.gather) {
    return call(d, writes ? "tpu::view_write_scatter" : "tpu::view_read_gather", std::move(in),
                {Number::of(v.offset)},
                [&](CallKey& k) { k.attr(base->dtype), k.attr(v.sizes), k.attr(v.strides); });
  }
  for (size_t i = 0; i < p.factor.size(); ++i) {
    if ((p.count[i] - 1) * p.step[i] + 1 != p.factor[i]) starts.push_back(Number::of(p.start[i]));
  }
  return call(d, writes ? "tpu::view_write" : "tpu::view_read", std::move(in), starts,
              [&](CallKey& k) {
                k.attr(base->dtype), k.attr(p.factor), k.attr(p.count), k.attr(p.step),
                    k.attr(p.axis), k.attr(v.sizes);
                k.scalar_list(starts.size());
              });
}

TEST(views_are_read_and_written_right) {
  Runtime& r = runtime();
  Device& d = r.device(0);
  const Fused fused;
  std::mt19937 engine(3);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  for (int round = 0; round < 60; ++round) {
    Dims dims(static_cast<size_t>(pick(0, 3)));
    for (int64_t& n : dims) n = pick(1, 5);
    const Type* base = trace::intern({DType::kI32, dims});
    std::vector<int32_t> data(static_cast<size_t>(base->numel()));
    std::iota(data.begin(), data.end(), 100);
    View v;
    v.offset = pick(0, base->numel() - 1);
    int64_t left = base->numel() - 1 - v.offset;
    // Distinct elements, so that a write is defined: each stride steps over what the smaller ones
    // span.
    int64_t span = 1;
    for (int64_t n = pick(0, 3); n > 0; --n) {
      const int64_t stride = span * pick(1, 2);
      v.strides.insert(v.strides.begin(), stride);
      v.sizes.insert(v.sizes.begin(), pick(1, std::min<int64_t>(left / stride + 1, 4)));
      left -= stride * (v.sizes.front() - 1);
      span = stride * v.sizes.front();
    }
    for (size_t i = v.sizes.size(); i > 1; --i) {
      const auto j = static_cast<size_t>(pick(0, static_cast<int64_t>(i) - 1));
      std::swap(v.sizes[i - 1], v.sizes[j]);
      std::swap(v.strides[i - 1], v.strides[j]);
    }
    const Type* shape = trace::intern({DType::kI32, v.sizes});
    std::vector<int32_t> source(static_cast<size_t>(shape->numel()));
    std::iota(source.begin(), source.end(), 1);
    std::vector<int32_t> read(source.size()), written = data;
    each(v, [&](size_t i, size_t flat) { read[i] = data[flat], written[flat] = source[i]; });
    const ValuePtr b = upload(d, data, base), s = upload(d, source, shape);
    const ValuePtr got = view_call(d, v, base, {b}), updated = view_call(d, v, base, {b, s});
    EXPECT_TRUE(download<int32_t>(got) == read);
    EXPECT_TRUE(download<int32_t>(updated) == written);
  }
}

}  // namespace
}  // namespace tpu::runtime
