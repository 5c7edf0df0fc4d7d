// Conformance suite: what this project needs of a PJRT plugin. Run it with the paths of plugin
// libraries; every test runs on each of them. Without a path all tests are skipped.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/test.h"
#include "pjrt/client.h"
#include "pjrt/ffi.h"
#include "pjrt/program.h"

namespace tpu::pjrt {
namespace {

using Shape = std::vector<int64_t>;
using Floats = std::vector<float>;

// Runs the body with a client on every plugin of the command line and says which one a failure
// belongs to.
template <class Body>
void on_each_plugin(const NamedValues& options, Body body) {
  if (test::args().empty()) SKIP("no plugin path was given");
  for (const std::string& path : test::args()) {
    const int before = test::failures();
    try {
      const auto client = Client::create(Api::load(path), options);
      body(*client);
    } catch (const test::Skipped& s) {
      std::printf("skip on %s: %s\n", path.c_str(), s.reason.c_str());
    } catch (const std::exception& e) {
      test::report(path.c_str(), 0, cat("threw ", e.what()));
    }
    if (test::failures() != before) std::fprintf(stderr, "  with the plugin %s\n", path.c_str());
  }
}
template <class Body>
void on_each_plugin(Body body) {
  on_each_plugin({}, body);
}

// A module whose main has the given arguments, results and body, in MLIR's generic form.
std::string module(std::string_view args, std::string_view types, std::string_view result_types,
                   std::string_view body, std::string_view extra = "") {
  return cat("\"builtin.module\"() ({\n \"func.func\"() ({\n ^bb0(", args, "):\n", body,
             " }) {sym_name = \"main\", function_type = (", types, ") -> (", result_types, ")",
             extra, "} : () -> ()\n}) : () -> ()\n");
}

// x + y on float vectors; `attributes` are those of the two arguments.
std::string add_program(int64_t n, std::string_view attributes = "") {
  const std::string t = cat("tensor<", n, "xf32>");
  return module(cat("%0: ", t, ", %1: ", t), cat(t, ", ", t), t,
                cat("  %2 = \"stablehlo.add\"(%0, %1) : (", t, ", ", t, ") -> ", t,
                    "\n  \"func.return\"(%2) : (", t, ") -> ()\n"),
                attributes.empty() ? std::string() : cat(", arg_attrs = [", attributes, "]"));
}

// `count` multiplications of a square matrix with itself, long enough to be still running after the
// launch.
std::string long_program(int64_t n, int count) {
  const std::string t = cat("tensor<", n, "x", n, "xf32>");
  std::string body;
  for (int i = 0; i < count; ++i) {
    body +=
        cat("  %", i + 1, " = \"stablehlo.dot_general\"(%", i, ", %0) {dot_dimension_numbers = ",
            "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} "
            ": (",
            t, ", ", t, ") -> ", t, "\n");
  }
  return module(cat("%0: ", t), t, t,
                cat(body, "  \"func.return\"(%", count, ") : (", t, ") -> ()\n"));
}

Buffer upload(const Client& client, const Floats& values, Shape dims = {},
              PJRT_Device* device = nullptr) {
  if (dims.empty()) dims = {static_cast<int64_t>(values.size())};
  return client
      .buffer_from_host({.data = values.data(), .element_type = ElementType::kF32, .dims = dims},
                        HostSemantics::kCopyDuringCall, device)
      .buffer;
}

Floats download(const Buffer& buffer) {
  Floats out(buffer.host_size_bytes() / sizeof(float));
  buffer.to_host(out.data(), out.size() * sizeof(float)).await();
  return out;
}

Buffer run(const Executable& executable, std::vector<PJRT_Buffer*> args,
           std::span<const int64_t> non_donatable = {}, PJRT_Device* device = nullptr) {
  PJRT_Buffer* output = nullptr;
  Launch launch{.args = args, .outputs = {&output, 1}, .non_donatable = non_donatable};
  launch.device = device;
  executable.execute(launch);
  return {executable.api(), output};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct alignas(kZeroCopyAlignment) Line {
  float values[16];
};

TEST(cts_identity) {
  on_each_plugin([](const Client& client) {
    const Api& api = client.api();
    EXPECT_TRUE(api.minor_version() >= 81);
    EXPECT_EQ(api.version(), cat("0.", api.minor_version()));
    EXPECT_EQ(api.stablehlo_version().size(), size_t{3});
    EXPECT_EQ(client.platform_name(), std::string("cpu"));
    EXPECT_TRUE(!client.platform_version().empty());
    EXPECT_EQ(client.process_index(), 0);
    // Loading once more gives the same object and does not initialize the plugin again.
    EXPECT_TRUE(Api::load(api.path()).get() == &api);
    EXPECT_TRUE(api.identity() != Hash128{});
    EXPECT_TRUE(client.identity() != api.identity());
    EXPECT_EQ(client.identity(), Client::create(client.shared_api())->identity());
  });
}

TEST(cts_extensions) {
  on_each_plugin([](const Client& client) {
    const Api& api = client.api();
    EXPECT_TRUE(!api.extensions().empty());
    EXPECT_TRUE(api.extension(ExtensionType::kFfi) != nullptr);
    EXPECT_TRUE(api.extension(ExtensionType::kMegascale) == nullptr);
  });
}

TEST(cts_devices) {
  on_each_plugin({{"cpu_device_count", int64_t{3}}}, [](const Client& client) {
    EXPECT_EQ(client.devices().size(), size_t{3});
    EXPECT_EQ(client.all_devices().size(), size_t{3});
    for (size_t i = 0; i < client.devices().size(); ++i) {
      const Device& d = client.devices()[i];
      EXPECT_EQ(d.id(), static_cast<int>(i));
      EXPECT_EQ(d.process_index(), 0);
      EXPECT_TRUE(d.is_addressable());
      EXPECT_TRUE(!d.kind().empty());
      EXPECT_TRUE(!d.debug_string().empty());
      EXPECT_EQ(d.memory_stats().has_value(), false);
    }
  });
}

TEST(cts_every_element_type_makes_the_round_trip) {
  on_each_plugin([](const Client& client) {
    const Shape dims = {3, 5};
    std::mt19937 random(7);
    for (int i = 1; i <= static_cast<int>(ElementType::kF4E2M1FN); ++i) {
      const auto type = static_cast<ElementType>(i);
      if (type == ElementType::kToken) continue;
      std::vector<uint8_t> in(15 * static_cast<size_t>(host_size_bytes(type)));
      for (uint8_t& b : in) b = static_cast<uint8_t>(random());
      // Of a narrow element only the low bits of its byte count.
      const int bits = bit_width(type);
      const int mask = type == ElementType::kPred ? 1 : bits < 8 ? (1 << bits) - 1 : 255;
      for (uint8_t& b : in) b = static_cast<uint8_t>(b & mask);
      try {
        const Buffer buffer =
            client
                .buffer_from_host({.data = in.data(), .element_type = type, .dims = dims},
                                  HostSemantics::kCopyDuringCall)
                .buffer;
        EXPECT_EQ(buffer.element_type(), type);
        EXPECT_EQ(Shape(buffer.dims().begin(), buffer.dims().end()), dims);
        EXPECT_EQ(buffer.host_size_bytes(), in.size());
        std::vector<uint8_t> out(in.size());
        buffer.to_host(out.data(), out.size()).await();
        for (uint8_t& b : out) b = static_cast<uint8_t>(b & mask);
        if (in != out) test::report(__FILE__, __LINE__, cat(type, ": ", in, " came back as ", out));
      } catch (const Error& e) {
        test::report(__FILE__, __LINE__, cat(type, ": ", e.text));
      }
    }
  });
}

TEST(cts_empty_scalar_and_large_buffers) {
  on_each_plugin([](const Client& client) {
    const Shape empty_dims = {0, 3};
    const Buffer empty =
        client
            .buffer_from_host(
                {.data = &client, .element_type = ElementType::kF32, .dims = empty_dims},
                HostSemantics::kCopyDuringCall)
            .buffer;
    EXPECT_EQ(Shape(empty.dims().begin(), empty.dims().end()), empty_dims);
    EXPECT_EQ(empty.host_size_bytes(), size_t{0});
    EXPECT_EQ(download(empty).size(), size_t{0});

    const float number = 42;
    const Buffer scalar =
        client
            .buffer_from_host({.data = &number, .element_type = ElementType::kF32},
                              HostSemantics::kCopyDuringCall)
            .buffer;
    EXPECT_EQ(scalar.dims().size(), size_t{0});
    EXPECT_EQ(download(scalar), Floats{42});

    Floats values(1 << 20);
    std::iota(values.begin(), values.end(), 0.0F);
    const Buffer large = upload(client, values, {1024, 1024});
    EXPECT_TRUE(download(large) == values);
    EXPECT_EQ(large.size_bytes(), values.size() * sizeof(float));
    EXPECT_TRUE(large.device() == client.devices()[0].handle());
    EXPECT_TRUE(large.is_on_cpu());

    Floats middle(3);
    large.copy_raw_to_host(middle.data(), 5 * sizeof(float), 3 * sizeof(float)).await();
    EXPECT_EQ(middle, (Floats{5, 6, 7}));
    EXPECT_THROW_MSG(large.to_host(middle.data(), 12), "was given room for 12");
  });
}

TEST(cts_strides_of_the_host_array) {
  on_each_plugin([](const Client& client) {
    const Floats values = {0, 1, 2, 3, 4, 5};
    const auto read = [&](const float* first, const Shape& dims, const Shape& strides) {
      const auto up = client.buffer_from_host(
          {.data = first, .element_type = ElementType::kF32, .dims = dims, .byte_strides = strides},
          HostSemantics::kCopyDuringCall);
      return download(up.buffer);
    };
    EXPECT_EQ(read(&values[0], {3, 2}, {4, 12}), (Floats{0, 3, 1, 4, 2, 5}));  // transposed
    EXPECT_EQ(read(&values[5], {3}, {-8}), (Floats{5, 3, 1}));                 // backwards
    EXPECT_EQ(read(&values[1], {2, 2}, {0, 4}), (Floats{1, 2, 1, 2}));         // broadcast
    EXPECT_EQ(read(&values[0], {2, 2}, {12, 8}), (Floats{0, 2, 3, 5}));        // every second
    EXPECT_THROW_MSG(read(&values[0], {2, 2}, {4}), "byte strides [4] do not fit the dims [2, 2]");
  });
}

TEST(cts_copies_do_not_see_later_writes) {
  on_each_plugin([](const Client& client) {
    const Shape dims = {16};
    Line line = {};
    line.values[0] = 1;
    const HostArray array{.data = line.values, .element_type = ElementType::kF32, .dims = dims};
    const Upload during = client.buffer_from_host(array, HostSemantics::kCopyDuringCall);
    line.values[0] = 2;
    EXPECT_EQ(download(during.buffer)[0], 1.0F);

    const Upload until = client.buffer_from_host(array, HostSemantics::kCopyUntilDone);
    until.host_done.await();
    line.values[0] = 3;
    EXPECT_EQ(download(until.buffer)[0], 2.0F);
  });
}

TEST(cts_zero_copy_of_aligned_memory) {
  on_each_plugin([](const Client& client) {
    const Shape dims = {16};
    Line line = {};
    for (const HostSemantics semantics :
         {HostSemantics::kZeroCopy, HostSemantics::kMutableZeroCopy}) {
      std::atomic<int> done = 0;
      Upload up = client.buffer_from_host(
          {.data = line.values, .element_type = ElementType::kF32, .dims = dims}, semantics,
          nullptr, [&] { ++done; });
      EXPECT_EQ(up.buffer.unsafe_pointer(), reinterpret_cast<uintptr_t>(line.values));
      line.values[3] = 9;
      EXPECT_EQ(download(up.buffer)[3], 9.0F);
      EXPECT_EQ(done.load(), 0);
      EXPECT_TRUE(!up.host_done.is_ready());
      up.buffer = Buffer();
      up.host_done.await();
      while (done == 0) std::this_thread::yield();
      EXPECT_EQ(done.load(), 1);
    }
    // Memory that is not aligned is copied in silence.
    const Shape part = {8};
    const Upload up = client.buffer_from_host(
        {.data = line.values + 1, .element_type = ElementType::kF32, .dims = part},
        HostSemantics::kZeroCopy);
    EXPECT_TRUE(up.buffer.unsafe_pointer() != reinterpret_cast<uintptr_t>(line.values + 1));
  });
}

// The deleter may run on a thread of the plugin, after the buffer is gone: it owns what it touches.
TEST(cts_views_of_host_memory) {
  on_each_plugin([](const Client& client) {
    const Shape dims = {16};
    Line line = {};
    const auto deleted = std::make_shared<std::promise<void>>();
    const std::future<void> done = deleted->get_future();
    {
      const Buffer view = client.view_of_device_buffer(
          line.values, ElementType::kF32, dims, nullptr, [deleted] { deleted->set_value(); });
      EXPECT_EQ(view.unsafe_pointer(), reinterpret_cast<uintptr_t>(line.values));
      line.values[15] = 5;
      EXPECT_EQ(download(view)[15], 5.0F);
      EXPECT_TRUE(done.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
    }
    EXPECT_TRUE(done.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    const Shape part = {8};
    const auto called = std::make_shared<std::atomic<bool>>(false);
    EXPECT_THROW_MSG(client.view_of_device_buffer(line.values + 1, ElementType::kF32, part, nullptr,
                                                  [called] { *called = true; }),
                     "align");
    EXPECT_TRUE(!*called);
  });
}

TEST(cts_uninitialized_buffer_can_be_written) {
  on_each_plugin([](const Client& client) {
    const Shape dims = {4, 4};
    const Buffer buffer = client.uninitialized_buffer(ElementType::kF32, dims);
    buffer.await();
    EXPECT_EQ(Shape(buffer.dims().begin(), buffer.dims().end()), dims);
    const Floats values(16, 3);
    std::memcpy(reinterpret_cast<void*>(buffer.unsafe_pointer()), values.data(), 64);
    EXPECT_EQ(download(buffer), values);
  });
}

TEST(cts_delete_frees_and_later_use_is_an_error) {
  on_each_plugin([](const Client& client) {
    Buffer buffer = upload(client, {1, 2});
    EXPECT_TRUE(!buffer.is_deleted());
    buffer.delete_memory();
    EXPECT_TRUE(buffer.is_deleted());
    EXPECT_EQ(buffer.dims().size(), size_t{1});
    EXPECT_THROW_MSG(download(buffer), "deleted or donated");
    // The error of an event reaches both kinds of waiting.
    EXPECT_THROW_MSG(buffer.await(), "deleted or donated");
    std::promise<std::string> text;
    buffer.ready_event().on_ready([&](const Error* e) { text.set_value(e ? e->text : ""); });
    EXPECT_TRUE(contains(text.get_future().get(), "deleted or donated"));
    buffer = Buffer();
    EXPECT_THROW_MSG(buffer.dims(), "an empty buffer was used");
  });
}

TEST(cts_execute) {
  on_each_plugin([](const Client& client) {
    const Executable add = client.compile(add_program(3), "mlir", {});
    EXPECT_EQ(add.num_outputs(), size_t{1});
    EXPECT_EQ(add.num_replicas(), 1);
    EXPECT_EQ(add.num_partitions(), 1);
    EXPECT_EQ(add.output_types().size(), size_t{1});
    EXPECT_TRUE(add.output_types()[0] == (OutputType{ElementType::kF32, {3}}));
    EXPECT_EQ(add.devices().size(), size_t{1});
    const Buffer x = upload(client, {1, 2, 3}), y = upload(client, {10, 20, 30});
    EXPECT_EQ(download(run(add, {x.handle(), y.handle()})), (Floats{11, 22, 33}));
    EXPECT_EQ(download(run(add, {x.handle(), x.handle()})), (Floats{2, 4, 6}));
    EXPECT_TRUE(!x.is_deleted());

    // Several outputs, and none.
    const std::string t = "tensor<2xf32>";
    const Executable two =
        client.compile(module(cat("%0: ", t), t, cat(t, ", ", t),
                              cat("  %1 = \"stablehlo.negate\"(%0) : (", t, ") -> ", t,
                                  "\n  \"func.return\"(%1, %0) : (", t, ", ", t, ") -> ()\n")),
                       "mlir", {});
    const Buffer z = upload(client, {1, -2});
    PJRT_Buffer* args[] = {z.handle()};
    PJRT_Buffer* outputs[2] = {};
    const Event done = two.execute({.args = args, .outputs = outputs, .want_completion = true});
    done.await();
    const Buffer first(client.api(), outputs[0]), second(client.api(), outputs[1]);
    EXPECT_EQ(download(first), (Floats{-1, 2}));
    EXPECT_EQ(download(second), (Floats{1, -2}));
  });
}

TEST(cts_execute_errors) {
  on_each_plugin([](const Client& client) {
    const Executable add = client.compile(add_program(3), "mlir", {});
    const Buffer x = upload(client, {1, 2, 3}), small = upload(client, {1});
    EXPECT_THROW_MSG(run(add, {x.handle()}), "expected 2");
    EXPECT_THROW_MSG(run(add, {x.handle(), x.handle(), x.handle()}), "expected 2");
    EXPECT_THROW_MSG(run(add, {x.handle(), small.handle()}), "size");
    EXPECT_THROW_MSG(add.execute({}), "a program with 1 outputs was given room for 0");
    // A failed launch leaves the arguments alone.
    EXPECT_EQ(download(run(add, {x.handle(), x.handle()})), (Floats{2, 4, 6}));
  });
}

void expect_donation(const Client& client, std::string_view attribute) {
  const Executable add = client.compile(add_program(16, cat("{", attribute, "}, {}")), "mlir", {});
  const Buffer y = upload(client, Floats(16, 1));
  const Buffer x = upload(client, Floats(16, 5));
  const uintptr_t memory = x.unsafe_pointer();

  // Not in this launch.
  const std::array<int64_t, 1> keep = {0};
  const Buffer fresh = run(add, {x.handle(), y.handle()}, keep);
  EXPECT_EQ(download(fresh), Floats(16, 6));
  EXPECT_TRUE(fresh.unsafe_pointer() != memory);
  EXPECT_TRUE(!x.is_deleted());
  EXPECT_EQ(download(x), Floats(16, 5));

  const Buffer reused = run(add, {x.handle(), y.handle()});
  EXPECT_EQ(download(reused), Floats(16, 6));
  EXPECT_EQ(reused.unsafe_pointer(), memory);
  EXPECT_TRUE(x.is_deleted());
  EXPECT_THROW_MSG(run(add, {x.handle(), y.handle()}), "donated");

  const Buffer twice = upload(client, Floats(16, 5));
  EXPECT_THROW_MSG(run(add, {twice.handle(), twice.handle()}), "donated");
}

TEST(cts_donation_by_alias) {
  on_each_plugin([](const Client& client) {
    expect_donation(client, "tf.aliasing_output = 0 : i32");
    EXPECT_EQ(client.compile(add_program(16, "{tf.aliasing_output = 0 : i32}, {}"), "mlir", {})
                  .memory_stats()
                  ->alias_bytes,
              int64_t{64});
  });
}

TEST(cts_donation_by_donor) {
  on_each_plugin([](const Client& client) { expect_donation(client, "jax.buffer_donor = true"); });
}

TEST(cts_donation_of_zero_copy_memory) {
  on_each_plugin([](const Client& client) {
    const Executable add =
        client.compile(add_program(16, "{jax.buffer_donor = true}, {}"), "mlir", {});
    const Buffer one = upload(client, Floats(16, 1));
    const Shape dims = {16};
    Line line = {};
    const HostArray array{.data = line.values, .element_type = ElementType::kF32, .dims = dims};
    // Read-only memory of the caller is never written; memory lent for writing is.
    const Upload read_only = client.buffer_from_host(array, HostSemantics::kZeroCopy);
    EXPECT_EQ(download(run(add, {read_only.buffer.handle(), one.handle()})), Floats(16, 1));
    EXPECT_EQ(line.values[0], 0.0F);
    const Upload writable = client.buffer_from_host(array, HostSemantics::kMutableZeroCopy);
    EXPECT_EQ(download(run(add, {writable.buffer.handle(), one.handle()})), Floats(16, 1));
    EXPECT_EQ(line.values[0], 1.0F);
  });
}

TEST(cts_execution_is_asynchronous) {
  on_each_plugin([](const Client& client) {
    constexpr int64_t kSize = 512;
    const Executable program = client.compile(long_program(kSize, 20), "mlir", {});
    const Buffer x = upload(client, Floats(kSize * kSize, 0), {kSize, kSize});
    PJRT_Buffer* args[] = {x.handle()};
    // One launch may be slow on a busy machine, so a few are tried.
    bool seen_running = false;
    for (int i = 0; i < 5 && !seen_running; ++i) {
      PJRT_Buffer* handle = nullptr;
      const Event completion =
          program.execute({.args = args, .outputs = {&handle, 1}, .want_completion = true});
      const Buffer output(client.api(), handle);
      const Event ready = output.ready_event();
      seen_running = !ready.is_ready();
      std::promise<bool> ended_well;
      ready.on_ready([&](const Error* e) { ended_well.set_value(e == nullptr); });
      EXPECT_TRUE(ended_well.get_future().get());
      ready.await();
      EXPECT_TRUE(ready.is_ready());
      completion.await();
      EXPECT_EQ(download(output)[7], 0.0F);
    }
    EXPECT_TRUE(seen_running);
    // What a callback throws must not reach the plugin's thread.
    std::promise<void> called;
    x.ready_event().on_ready([&](const Error*) {
      called.set_value();
      throw std::runtime_error("expected by this test");
    });
    called.get_future().get();
  });
}

TEST(cts_inputs_may_be_dropped_while_in_use) {
  on_each_plugin([](const Client& client) {
    constexpr int64_t kSize = 256;
    Floats identity(kSize * kSize, 0);
    for (int64_t i = 0; i < kSize; ++i) identity[static_cast<size_t>(i * kSize + i)] = 2;
    Buffer output;
    {
      const Executable program = client.compile(long_program(kSize, 10), "mlir", {});
      const Buffer x = upload(client, identity, {kSize, kSize});
      output = run(program, {x.handle()});
    }
    EXPECT_EQ(download(output)[0], 2048.0F);  // 2 to the 11th
    EXPECT_EQ(download(output)[1], 0.0F);
  });
}

TEST(cts_serialization) {
  on_each_plugin([](const Client& client) {
    const Buffer x = upload(client, {1, 2, 3});
    const Executable original = client.compile(add_program(3), "mlir", {});
    const std::string before = original.serialize();
    run(original, {x.handle(), x.handle()}).await();
    const std::string bytes = original.serialize();
    for (const std::string& b : {before, bytes}) {
      const Executable add = client.deserialize(b);
      EXPECT_EQ(add.num_outputs(), size_t{1});
      EXPECT_EQ(download(run(add, {x.handle(), x.handle()})), (Floats{2, 4, 6}));
      EXPECT_THROW_MSG(add.serialize(), "keep the bytes it was loaded from");
    }

    EXPECT_THROW_MSG(client.deserialize("rubbish"), "no serialized executable of torch_tpu");
    std::string foreign = bytes;
    foreign[foreign.find('\n') + 1] ^= 1;
    EXPECT_THROW_MSG(client.deserialize(foreign), "made by another plugin build");
  });
  // No plugin may load what another one made: some would compute garbage.
  for (const std::string& maker : test::args()) {
    const auto from = Client::create(Api::load(maker));
    const std::string bytes = from->compile(add_program(3), "mlir", {}).serialize();
    for (const std::string& loader : test::args()) {
      if (loader == maker) continue;
      const auto to = Client::create(Api::load(loader));
      EXPECT_THROW_MSG(to->deserialize(bytes), "made by another plugin build");
    }
  }
}

TEST(cts_questions_about_a_program) {
  on_each_plugin([](const Client& client) {
    const Executable add = client.compile(add_program(1024), "mlir", {});
    const auto memory = add.memory_stats();
    EXPECT_TRUE(memory.has_value());
    EXPECT_EQ(memory->argument_bytes, int64_t{8192});
    EXPECT_EQ(memory->output_bytes, int64_t{4096});
    EXPECT_TRUE(!add.fingerprint().empty());
    EXPECT_TRUE(!add.name().empty());
    EXPECT_TRUE(add.code_size_bytes() >= 0);
    if (const auto cost = add.cost_analysis()) {
      EXPECT_EQ(cost->at("flops"), 1024.0);
    }
    const auto program = add.optimized_program();
    EXPECT_TRUE(program.has_value() && !program->code.empty());
    EXPECT_TRUE(contains(program->format, "hlo"));
    const auto options = add.compile_options();
    EXPECT_EQ(options.has_value(), client.api().minor_version() >= 87);
    if (options) EXPECT_TRUE(!read_message_field(*options, 3).empty());
  });
}

TEST(cts_several_devices) {
  on_each_plugin({{"cpu_device_count", int64_t{4}}}, [](const Client& client) {
    PJRT_Device* third = client.devices()[2].handle();
    const Buffer x = upload(client, {1, 2, 3}), there = upload(client, {1, 1, 1}, {}, third);
    EXPECT_TRUE(there.device() == third);
    const Buffer copy = x.copy_to_device(third);
    EXPECT_TRUE(copy.device() == third);
    EXPECT_EQ(download(copy), (Floats{1, 2, 3}));

    const Executable portable = client.compile(add_program(3), "mlir", {.portable = true});
    const Buffer sum = run(portable, {copy.handle(), there.handle()}, {}, third);
    EXPECT_TRUE(sum.device() == third);
    EXPECT_EQ(download(sum), (Floats{2, 3, 4}));
    const Buffer at_first =
        run(portable, {x.handle(), x.handle()}, {}, client.devices()[0].handle());
    EXPECT_EQ(download(at_first), (Floats{2, 4, 6}));

    const Executable fixed = client.compile(add_program(3), "mlir", {.device_assignment = {2}});
    EXPECT_TRUE(fixed.devices() == std::vector<PJRT_Device*>{third});
    EXPECT_EQ(download(run(fixed, {copy.handle(), there.handle()})), (Floats{2, 3, 4}));
    EXPECT_THROW_MSG(client.compile(add_program(3), "mlir", {.device_assignment = {0, 1}}),
                     "the device assignment [0, 1] does not have 1 x 1 devices");
  });
}

TEST(cts_all_reduce_over_replicas) {
  on_each_plugin({{"cpu_device_count", int64_t{4}}}, [](const Client& client) {
    const std::string t = "tensor<2xf32>", s = "tensor<f32>";
    const std::string program =
        module(cat("%0: ", t), t, t,
               cat("  %1 = \"stablehlo.all_reduce\"(%0) ({\n   ^bb0(%2: ", s, ", %3: ", s,
                   "):\n   %4 = \"stablehlo.add\"(%2, %3) : (", s, ", ", s, ") -> ", s,
                   "\n   \"stablehlo.return\"(%4) : (", s,
                   ") -> ()\n  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (",
                   t, ") -> ", t, "\n  \"func.return\"(%1) : (", t, ") -> ()\n"));
    const Executable sum = client.compile(program, "mlir", {.num_replicas = 4});
    EXPECT_EQ(sum.num_replicas(), 4);
    EXPECT_EQ(sum.devices().size(), size_t{4});
    std::vector<Buffer> inputs;
    std::array<PJRT_Buffer*, 4> args{}, outputs{};
    std::vector<std::span<PJRT_Buffer* const>> arg_lists;
    std::vector<std::span<PJRT_Buffer*>> output_lists;
    for (size_t i = 0; i < 4; ++i) {
      inputs.push_back(upload(client, {static_cast<float>(i), 1}, {}, sum.devices()[i]));
      args[i] = inputs.back().handle();
      arg_lists.emplace_back(&args[i], 1);
      output_lists.emplace_back(&outputs[i], 1);
    }
    const std::vector<Event> done = sum.execute_all(arg_lists, output_lists, {}, 1, true);
    EXPECT_EQ(done.size(), size_t{4});
    for (size_t i = 0; i < 4; ++i) {
      done[i].await();
      const Buffer output(client.api(), outputs[i]);
      EXPECT_TRUE(output.device() == sum.devices()[i]);
      EXPECT_EQ(download(output), (Floats{6, 4}));
    }
    EXPECT_THROW_MSG(sum.execute_all(arg_lists, {}), "arguments for 4 devices and outputs for 0");
  });
}

TEST(cts_shardy_partitions) {
  on_each_plugin({{"cpu_device_count", int64_t{2}}}, [](const Client& client) {
    const std::string program = R"(module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
      -> tensor<f32> {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
})";
    const Executable sum = client.compile(
        program, "mlir",
        {.num_partitions = 2, .use_spmd_partitioning = true, .use_shardy_partitioner = true});
    EXPECT_EQ(sum.num_partitions(), 2);
    const Buffer low = upload(client, {1, 2}, {}, sum.devices()[0]),
                 high = upload(client, {3, 4}, {}, sum.devices()[1]);
    std::array<PJRT_Buffer*, 2> args = {low.handle(), high.handle()}, outputs{};
    const std::span<PJRT_Buffer* const> arg_lists[] = {{&args[0], 1}, {&args[1], 1}};
    const std::span<PJRT_Buffer*> output_lists[] = {{&outputs[0], 1}, {&outputs[1], 1}};
    sum.execute_all(arg_lists, output_lists);
    for (PJRT_Buffer* output : outputs) {
      EXPECT_EQ(download(Buffer(client.api(), output)), Floats{10});
    }
  });
}

TEST(cts_bounded_dynamic_output) {
  on_each_plugin([](const Client& client) {
    const std::string bounded = "tensor<?xf32, #stablehlo.bounds<16>>";
    const Executable cut = client.compile(
        module("%0: tensor<16xf32>, %1: tensor<i32>", "tensor<16xf32>, tensor<i32>", bounded,
               cat("  %2 = \"stablehlo.set_dimension_size\"(%0, %1) {dimension = 0 : i64} : "
                   "(tensor<16xf32>, tensor<i32>) -> ",
                   bounded, "\n  \"func.return\"(%2) : (", bounded, ") -> ()\n")),
        "mlir", {});
    Floats values(16);
    std::iota(values.begin(), values.end(), 0.0F);
    const int32_t count = 5;
    const Buffer x = upload(client, values);
    const Buffer n = client
                         .buffer_from_host({.data = &count, .element_type = ElementType::kS32},
                                           HostSemantics::kCopyDuringCall)
                         .buffer;
    const Buffer y = run(cut, {x.handle(), n.handle()});
    EXPECT_EQ(y.dims()[0], int64_t{16});
    EXPECT_EQ(y.unpadded_dims()[0], int64_t{5});
    EXPECT_EQ(download(y), (Floats{0, 1, 2, 3, 4}));
  });
}

TEST(cts_compile_errors) {
  on_each_plugin([](const Client& client) {
    const auto compile = [&](std::string_view text, const CompileOptions& options = {}) {
      client.compile(text, "mlir", options);
      return 0;
    };
    EXPECT_THROW_MSG(compile("this is no program"), "PJRT_Client_Compile");
    EXPECT_THROW_MSG(compile(""), "PJRT_Client_Compile");
    EXPECT_THROW_MSG(compile(module("%0: tensor<?xf32>", "tensor<?xf32>", "tensor<?xf32>",
                                    "  \"func.return\"(%0) : (tensor<?xf32>) -> ()\n")),
                     "unbounded dynamic dimension (tensor<?");
    EXPECT_THROW_MSG(
        compile(
            module("%0: tensor<f32>", "tensor<f32>", "tensor<f32>",
                   "  %1 = \"stablehlo.custom_call\"(%0) {call_target_name = \"no_such_target\", "
                   "api_version = 4 : i32} : (tensor<f32>) -> tensor<f32>\n"
                   "  \"func.return\"(%1) : (tensor<f32>) -> ()\n")),
        "no_such_target");
    EXPECT_THROW_MSG(compile(add_program(2), {.overrides = {{"xla_no_such_option", true}}}),
                     "xla_no_such_option");
    EXPECT_THROW_MSG(client.compile(add_program(2), "no_such_format", {}), "no_such_format");
    try {
      compile("this is no program");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kDevice);
    }
  });
}

TEST(cts_fast_options) {
  on_each_plugin([](const Client& client) {
    const CompileOptions fast = client.fast_options({});
    EXPECT_TRUE(fast.overrides.contains("xla_backend_optimization_level"));
    EXPECT_TRUE(fast.overrides.contains("xla_cpu_use_fusion_emitters") ||
                !fast.debug_options.empty());
    const Executable add = client.compile(add_program(3), "mlir", fast);
    const Buffer x = upload(client, {1, 2, 3});
    EXPECT_EQ(download(run(add, {x.handle(), x.handle()})), (Floats{2, 4, 6}));
    // What the caller chose stays.
    const CompileOptions own =
        client.fast_options({.overrides = {{"xla_backend_optimization_level", int64_t{2}}}});
    EXPECT_TRUE(own.overrides.at("xla_backend_optimization_level") == OptionValue(int64_t{2}));
    client.compile(add_program(3), "mlir", own);
  });
}

void copy_or_fail(const FfiCall& call) {
  TPU_CHECK(call.operands.size() == 1 && call.results.size() == 1, "one operand, one result");
  const float value = *static_cast<const float*>(call.operands[0].data);
  TPU_CHECK(value >= 0, "the argument is negative");
  *static_cast<float*>(call.results[0].data) = call.flag("negated") ? -value : value;
}

TEST(cts_ffi_handler) {
  on_each_plugin([](const Client& client) {
    const std::string target = cat("cts_copy_or_fail_", client.api().version());
    static std::vector<std::string> registered;
    if (std::ranges::find(registered, target) == registered.end()) {
      register_ffi_handler(client.api(), target, ffi_entry<copy_or_fail>());
      registered.push_back(target);
    }
    const Executable copy = client.compile(
        module("%0: tensor<1xf32>", "tensor<1xf32>", "tensor<1xf32>",
               cat("  %1 = \"stablehlo.custom_call\"(%0) {call_target_name = \"", target,
                   "\", api_version = 4 : i32, backend_config = {negated = true}} : "
                   "(tensor<1xf32>) -> tensor<1xf32>\n  \"func.return\"(%1) : (tensor<1xf32>) -> "
                   "()\n")),
        "mlir", {});
    const Buffer good = upload(client, {7}), bad = upload(client, {-7});
    EXPECT_EQ(download(run(copy, {good.handle()})), Floats{-7});
    // The error shows in the launch or in the output's event.
    EXPECT_THROW_MSG(run(copy, {bad.handle()}).await(), "the argument is negative");
    EXPECT_EQ(download(run(copy, {good.handle()})), Floats{-7});
  });
}

TEST(cts_threads_share_a_client) {
  on_each_plugin([](const Client& client) {
    const Executable add = client.compile(add_program(3), "mlir", {});
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          const auto v = static_cast<float>(t * 100 + i);
          const Buffer x = upload(client, {v, v, v});
          if (download(run(add, {x.handle(), x.handle()})) == Floats(3, 2 * v)) ++right;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right.load(), 200);
  });
}

TEST(cts_a_forked_child_gets_an_error) {
  on_each_plugin([](const Client& client) {
    const Buffer x = upload(client, {1});
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        x.await();
      } catch (const Error& e) {
        code = contains(e.text, "spawn") ? 42 : 2;
      }
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 42);
    EXPECT_EQ(download(x), Floats{1});
  });
}

TEST(cts_client_options) {
  on_each_plugin([](const Client& client) {
    // Plugins refuse or ignore an option they do not know; they must not fail otherwise.
    try {
      Client::create(client.shared_api(), {{"no_such_option", std::string("x")}});
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.text, "no_such_option"));
    }
    EXPECT_THROW_MSG(check_xla_flags(client.api().path(), "--xla_dump_to=x --xla_no_such_flag=1"),
                     "XLA_FLAGS holds --xla_no_such_flag, which the plugin");
    check_xla_flags(client.api().path(),
                    " --xla_dump_to=x  --xla_force_host_platform_device_count=2");
  });
}

}  // namespace
}  // namespace tpu::pjrt
