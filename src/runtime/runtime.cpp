#include "runtime/runtime.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/strings.h"
#include "runtime/events.h"
#include "trace/lower.h"

namespace tpu::runtime {
namespace {

using trace::line_of;
using trace::NodeRange;

// A window of this many nodes is flushed: XLA's compile time grows faster than linearly.
constexpr size_t kDefaultMaxNodes = 2000;

// A loop is cut where it comes round, if an iteration, or some, are worth a program of their own.
constexpr size_t kLeastRepeat = 128;

// Inputs that a window may keep alive though nothing else does.
constexpr int64_t kMaxHeldUploads = int64_t{256} << 20;

// Results of all recorded ops, of the memory: most are never stored.
constexpr int64_t kMaxRecordedBytes = 2;

// Programs that many windows share, those of single ops, come in one form for small operands: they
// do not take their memory.
constexpr int64_t kDonateFromBytes = int64_t{1} << 20;

constexpr size_t kMaxSeenWindows = size_t{1} << 16;

std::atomic<Runtime*> instance{nullptr};
std::atomic<bool> forked{false};
std::mutex start_mutex;

int64_t host_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

// XLA ends the process over flags that are neither flags nor a file that holds some.
void check_xla_flags() {
  const char* flags = std::getenv("XLA_FLAGS");
  if (!flags) return;
  const std::string_view text = flags;
  const size_t first = text.find_first_not_of(" \t\r\n");
  TPU_CHECK(first == std::string_view::npos || text[first] == '-' || access(flags, R_OK) == 0,
            "XLA_FLAGS=", text,
            " is not understood; flags begin with --, anything else is the name",
            " of a file of flags, and there is none");
}

// The CPU plugin takes and returns the memory of all results by malloc, and the C library hands
// freed megabytes back to the system: their pages are made, and zeroed, anew at each launch.
// ADR 26.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMapFrom = 64 << 20, kTrimFrom = 512 << 20;
  for (const char* own : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(own)) return;
  }
  mallopt(M_MMAP_THRESHOLD, kMapFrom);
  mallopt(M_TRIM_THRESHOLD, kTrimFrom);
#endif
}

std::atomic<int> process_mode{-1};
thread_local std::vector<Mode> mode_stack;
int (*inherited_mode)() = nullptr;
std::span<const FfiTarget> lapack_targets;

// Open traces by number, from 1; a number is free again after its pop.
std::array<std::atomic<trace::Trace*>, 128> traces{};
thread_local std::vector<int> trace_stack;
std::atomic<int> open_traces{0};
int (*inherited_trace)() = nullptr;

// "12 ops, aten::mm(...) to aten::add(...)".
std::string summary(const trace::Window& w) {
  const auto& nodes = w.nodes();
  const std::string first = nodes.front().inst->signature();
  if (nodes.size() == 1) return first;
  return cat(nodes.size(), " ops, ", first, " to ", nodes.back().inst->signature());
}

// For torch.tpu.explain and TORCH_TPU_LOG=compile.
void tell_compile(const trace::Window& w, double seconds) {
  static const bool logged = settings().get_string("log") == "compile";
  if (!logged && !events_kept()) return;
  const std::string where = line_of(w.nodes().front().location);
  const std::string what = summary(w);
  if (logged) {
    log_text(cat("compiled in ", std::round(seconds * 1000), " ms",
                 where.empty() ? "" : " from " + where, ": ", what));
  }
  if (!events_kept()) return;
  Event e{.kind = Event::Kind::kCompile,
          .where = where,
          .what = what,
          .seconds = seconds,
          .ops = static_cast<int64_t>(w.nodes().size())};
  for (const trace::Node& n : w.nodes()) e.signatures.push_back(n.inst->signature());
  add_event(std::move(e));
}

// What a loaded executable says it gives, against what the window expects: a wrong file must not
// run.
void check_outputs(const Program& p) {
  const auto types = p.executable.output_types();
  const size_t flags = p.assertions ? 1 : 0;
  bool same = types.size() == p.output_types.size() + flags;
  for (size_t i = 0; same && i < p.output_types.size(); ++i) {
    same = types[i].element_type == element_type(p.output_types[i]->dtype) &&
           types[i].dims == p.output_types[i]->dims;
  }
  TPU_CHECK(same, ErrorKind::kInternal,
            "the plugin's program gives other results than the window's");
}

// Whether this call is the one that the window began with: the same op, from the same line.
bool comes_round(const trace::Window& w, const trace::Instance& inst, const trace::Location& here) {
  const trace::Node& first = w.nodes().front();
  return first.inst == &inst && here.code && first.location.code == here.code &&
         first.location.offset == here.offset;
}

// The user's line that the calling thread is at.
std::string line_here() {
  const auto& capture = trace::location_source().capture;
  return capture ? line_of(capture()) : "";
}
std::string current_line() {
  const std::string line = line_here();
  return line.empty() ? "" : " at " + line;
}

// Seconds since its start.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<NodeRange> nodes_between(size_t begin, size_t end) {
  std::vector<NodeRange> all;
  for (; begin < end; ++begin) all.emplace_back(begin, begin + 1);
  return all;
}

std::vector<NodeRange> ops_of(const trace::Recording& r) {
  std::vector<NodeRange> all;
  size_t begin = 0;
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    if (!r.nodes[i].ends_op && i + 1 < r.nodes.size()) continue;
    all.emplace_back(begin, i + 1);
    begin = i + 1;
  }
  return all;
}

std::shared_ptr<const Error> failed_input(const trace::Recording& r, size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    const auto [in, in_end] = r.inputs_of(n);
    for (size_t i = in; i < in_end; ++i) {
      if (const auto& v = r.value(r.inputs[i]); v && v->failure) return v->failure;
    }
  }
  return nullptr;
}

std::string describe(const trace::Node& n) {
  const std::string line = line_of(n.location);
  return n.inst->signature() + (line.empty() ? "" : " at " + line);
}

void note_download(const Stopwatch& watch, int64_t size_bytes) {
  counters().bytes_d2h += size_bytes;
  if (!events_kept()) return;
  add_event({.kind = Event::Kind::kDownload,
             .where = line_here(),
             .seconds = watch.seconds(),
             .bytes = size_bytes});
}

}  // namespace

Mode default_mode() {
  int m = process_mode.load(std::memory_order_relaxed);
  if (m < 0) {
    m = static_cast<int>(settings().get_bool("launch_blocking")  ? Mode::kDebug
                         : settings().get_bool("defer_and_fuse") ? Mode::kFused
                                                                 : Mode::kStrict);
    process_mode = m;
  }
  return static_cast<Mode>(m);
}
void set_default_mode(Mode m) { process_mode = static_cast<int>(m); }
void push_mode(Mode m) { mode_stack.push_back(m); }
void pop_mode() {
  TPU_CHECK(!mode_stack.empty(), "no eager mode was pushed on this thread");
  mode_stack.pop_back();
}
Mode current_mode() {
  if (!mode_stack.empty()) return mode_stack.back();
  if (inherited_mode) {
    if (const int m = inherited_mode(); m >= 0) return static_cast<Mode>(m);
  }
  return default_mode();
}
void set_inherited_mode(int (*f)()) { inherited_mode = f; }
void set_lapack(std::span<const FfiTarget> targets) { lapack_targets = targets; }

int push_trace(trace::Trace* t) {
  for (size_t i = 1; i < traces.size(); ++i) {
    trace::Trace* none = nullptr;
    if (!traces[i].compare_exchange_strong(none, t)) continue;
    trace_stack.push_back(static_cast<int>(i));
    ++open_traces;
    return static_cast<int>(i);
  }
  TPU_THROW(ErrorKind::kInvalid, "more than ", traces.size() - 1, " programs are being traced");
}
void pop_trace() {
  TPU_CHECK(!trace_stack.empty(), "no program is being traced on this thread");
  traces[static_cast<size_t>(trace_stack.back())] = nullptr;
  trace_stack.pop_back();
  --open_traces;
}
trace::Trace* current_trace(int32_t device) {
  if (open_traces.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  for (size_t i = trace_stack.size(); i-- > 0;) {
    trace::Trace* t = traces[static_cast<size_t>(trace_stack[i])];
    if (t->window().device() == device) return t;
  }
  if (!inherited_trace || !trace_stack.empty()) return nullptr;
  trace::Trace* t = traces[static_cast<size_t>(inherited_trace())];
  return t && t->window().device() == device ? t : nullptr;
}
void set_inherited_trace(int (*f)()) { inherited_trace = f; }

pjrt::ElementType element_type(trace::DType t) {
  using enum pjrt::ElementType;
  constexpr pjrt::ElementType kTypes[hlo::kDTypeCount] = {
      kPred,   kU8,         kU16,        kU32,       kU64, kS8,   kS16, kS32, kS64, kF8E4M3FN,
      kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ, kF8E8M0FNU, kF16, kBF16, kF32, kF64, kC64, kC128};
  return kTypes[static_cast<size_t>(t)];
}

bool Runtime::started() { return instance.load() != nullptr; }
bool Runtime::in_bad_fork() { return forked.load(); }

int Runtime::device_count() {
  if (Runtime* r = instance.load()) return r->devices();
  settings().check();
  try {
    const Plugin p = find_plugin();
    if (p.kind == PluginKind::kTpu) return tpu_chip_count();
    if (p.kind == PluginKind::kCpu) return static_cast<int>(settings().get_int("cpu_device_count"));
    return get().devices();
  } catch (const Error&) {
    return 0;
  }
}

Runtime& Runtime::get() {
  if (Runtime* r = instance.load(std::memory_order_acquire)) [[likely]] {
    TPU_CHECK(!forked.load(std::memory_order_relaxed), ErrorKind::kDevice,
              "the TPU runtime was started before this process was forked and cannot be used in "
              "the child; use the "
              "'spawn' start method (torch.multiprocessing.set_start_method('spawn'))");
    return *r;
  }
  std::lock_guard lock(start_mutex);
  if (Runtime* r = instance.load()) return *r;
  auto r = std::unique_ptr<Runtime>(new Runtime);
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  instance.store(r.release(), std::memory_order_release);
  return *instance.load();
}

Runtime::Runtime() { start(); }

void Runtime::start() {
  settings().check();
  for (const std::string& text : settings().unknown_variables()) TPU_LOG(LogLevel::kWarning, text);
  check_xla_flags();
  plugin_ = find_plugin();
  auto api = pjrt::Api::load(plugin_.path);
  pjrt::NamedValues options;
  if (plugin_.kind != PluginKind::kTpu) {
    const int64_t n = settings().get_int("cpu_device_count");
    TPU_CHECK(n >= 1 && n <= 127, "TORCH_TPU_CPU_DEVICE_COUNT is ", n, "; it must be 1 to 127");
    // Only a CPU plugin takes it; a custom one is asked with and, if it refuses, without.
    options["cpu_device_count"] = n;
  }
  try {
    client_ = pjrt::Client::create(api, options);
  } catch (const Error& e) {
    if (plugin_.kind == PluginKind::kTpu) {
      const std::string holders = tpu_holders();
      TPU_THROW(ErrorKind::kDevice, "the TPU of this machine could not be opened",
                holders.empty() ? std::string() : cat("; it is in use by ", holders), ": ", e.text,
                "; set TORCH_TPU_PLATFORM=cpu to use the CPU plugin");
    }
    if (plugin_.kind != PluginKind::kCustom) throw;
    client_ = pjrt::Client::create(api, {});
  }
  on_cpu_ = client_->platform_name() == "cpu";
  if (on_cpu_) keep_freed_memory();
  // Before any program is loaded that calls them.
  const bool lapack = on_cpu_ && !lapack_targets.empty() && pjrt::takes_ffi_handlers(*api);
  if (lapack) {
    for (const FfiTarget& t : lapack_targets) pjrt::register_ffi_handler(*api, t.name, t.entry);
  }
  const bool for_cpu = on_cpu_ && settings().get_string("lower_for") == "plugin";
  instances_.set_target({.cpu_plugin = for_cpu,
                         .lapack = for_cpu && lapack && settings().get_bool("lapack"),
                         .tpu_calls = client_->platform_name() == "tpu"});
  programs_ = std::make_unique<ProgramCache>(*client_);
  donation_ = settings().get_bool("donation");
  debug_checks_ = settings().get_bool("debug_checks");
  const int64_t nodes = settings().get_int("flush_ops");
  max_nodes_ = nodes > 0 ? static_cast<size_t>(nodes) : kDefaultMaxNodes;
  int32_t index = 0;
  const int64_t limit = settings().get_int("memory_limit");
  for (const pjrt::Device& d : client_->devices()) {
    devices_.push_back(std::make_unique<Device>(index++, d));
    Device& device = *devices_.back();
    if (limit > 0) {
      device.total_memory_bytes = limit;
    } else if (const auto stats = d.memory_stats(); stats && stats->limit_bytes) {
      device.total_memory_bytes = *stats->limit_bytes;
    } else {
      device.total_memory_bytes =
          host_memory_bytes() / static_cast<int64_t>(client_->devices().size());
    }
    device.memory_limit_bytes = device.total_memory_bytes;
  }
}

Mode Runtime::mode() const { return current_mode(); }

trace::Window& Runtime::window_of(Device& d) {
  trace::Trace* t = current_trace(d.index);
  return t ? t->window() : d.window;
}

const trace::Instance& Runtime::instance_of(Device& d, std::string_view key) {
  trace::Trace* t = current_trace(d.index);
  return t ? t->instances().get(key) : instances_.get(key);
}

void Runtime::record(Device& d, const trace::Instance& inst,
                     std::span<const trace::ValuePtr> inputs, std::span<const ops::Number> numbers,
                     trace::RandomState random, trace::ValuePtr* outputs) {
  trace::Trace* t = current_trace(d.index);
  const auto& source = trace::location_source();
  if (!t) {
    if (d.waiting_step) flush(d, FlushReason::kStep);
    const trace::Location here = source.capture ? source.capture() : trace::Location();
    if (d.window.nodes().size() >= kLeastRepeat && comes_round(d.window, inst, here) &&
        current_mode() == Mode::kFused)
      flush(d, FlushReason::kRepeat);
    d.window.record(inst, inputs, numbers, random, here, outputs);
    return;
  }
  for (const trace::ValuePtr& v : inputs) {
    if (v->state == trace::Value::State::kPending && v->epoch == d.window.epoch())
      flush(d, FlushReason::kBoundary);
    TPU_CHECK(
        v->state != trace::Value::State::kPending || v->epoch == t->window().epoch(),
        ErrorKind::kUnsupported,
        "the body of a control-flow op uses a tensor of the program around it that is none of "
        "its arguments");
  }
  t->window().record(inst, inputs, numbers, random,
                     source.capture_traced ? source.capture_traced() : trace::Location(), outputs);
}

void Runtime::end_step(Device& d) {
  if (d.window.empty()) return;
  if (step_launches_.size() > kMaxSeenWindows) step_launches_.clear();
  const uint64_t content = d.window.content_hash();
  const StepLaunch when = step_launches_[content];
  if (when == StepLaunch::kAtOnce) return flush(d, FlushReason::kStep);
  d.waiting_step = {.content = content};
  if (when != StepLaunch::kUnknown) return;
  const Call c = prepare(d);
  d.waiting_step->live = c.live.size();
  d.waiting_step->key = hash64(c.key);
}

// What came after the step decides for the next rounds.
void Runtime::note_end_of_wait(Device& d, const Call& c, FlushReason why) {
  const Device::Step step = *std::exchange(d.waiting_step, std::nullopt);
  StepLaunch& when = step_launches_[step.content];
  if (when != StepLaunch::kUnknown) return;
  const bool dropped = c.live.size() < step.live;
  when = dropped && why != FlushReason::kStep ? StepLaunch::kAtRead : StepLaunch::kAtOnce;
  // The next round comes for the second time then.
  if (when == StepLaunch::kAtOnce && hash64(c.key) != step.key) seen_windows_.insert(step.key);
}

void Runtime::after_record(Device& d) {
  if (current_trace(d.index)) return;
  switch (current_mode()) {
    case Mode::kFused:
      if (d.window.empty()) break;
      d.window.end_op();
      if (d.window.nodes().size() >= max_nodes_) {
        flush(d, FlushReason::kSize);
      } else if (d.uploaded_bytes > kMaxHeldUploads ||
                 d.window.output_bytes() > kMaxRecordedBytes * d.total_memory_bytes) {
        flush(d, FlushReason::kBytes);
      }
      break;
    case Mode::kStrict:
      flush(d, FlushReason::kStrict);
      if (debug_checks_) d.checks.tell(false);
      break;
    case Mode::kDebug:
      flush(d, FlushReason::kStrict);
      for (const auto& e : d.launches.pending()) e->await();
      d.checks.tell(false);
      break;
  }
}

void Runtime::flush(Device& d, FlushReason why) {
  trace::Window& w = d.window;
  if (w.empty()) {
    if (!w.parameters().empty()) w.clear();  // arguments of a graph that has no ops
    return;
  }
  ++counters().flushes[static_cast<size_t>(why)];
  counters().nodes += static_cast<int64_t>(w.nodes().size());
  d.uploaded_bytes = 0;
  const size_t n = w.nodes().size();
  const int64_t executes = counters().executes;
  Call call = prepare(d);
  if (d.waiting_step) note_end_of_wait(d, call, why);
  ErrorPtr failure;
  const bool at_once = why == FlushReason::kStrict || why == FlushReason::kGraph;
  if (!at_once && is_cold(d, call)) {
    trace::Recording r = w.take();
    std::vector<NodeRange> parts = pieces(r);
    if (parts.size() == 1) parts = ops_of(r);
    failure = run_in_pieces(d, r, parts);
    if (failure) r.restore({});
  } else {
    failure = run(d, std::move(call));
  }
  if (events_kept()) {
    add_event({.kind = Event::Kind::kFlush,
               .where = line_here(),
               .what = to_string(why),
               .ops = static_cast<int64_t>(n),
               .launches = counters().executes - executes});
  }
  if (!failure) return;
  if (failure->kind == ErrorKind::kMemory) ++d.memory.ooms;
  Error e = *failure;
  if (n > 1 && why != FlushReason::kStrict)
    e.text +=
        cat("\n  one of ", n, " deferred ops, run because of: ", to_string(why), current_line());
  throw Error(std::move(e));
}

Runtime::Call Runtime::prepare(Device& d, int64_t donate_from_bytes) {
  const trace::Window& w = d.window;
  Call c;
  c.live = w.live_outputs();
  c.donated = donation_ ? w.donatable(donate_from_bytes) : std::vector<bool>(w.parameters().size());
  if (c.live.empty()) {
    c.needed = std::ranges::any_of(w.nodes(), [](const auto& n) { return n.inst->assertions > 0; });
    if (!c.needed) return c;
  }
  c.key = w.key(c.live, c.donated);
  c.program = programs_->find(c.key);
  if (c.program) ++counters().memory_hits;
  return c;
}

// Whether several ops are here together for the first time: their one program is not in memory, not
// on disk, and may never be asked for again.
bool Runtime::is_cold(Device& d, Call& c) {
  if (!c.needed || c.program) return false;
  const auto& nodes = d.window.nodes();
  const auto ops = std::ranges::count_if(nodes, [](const trace::Node& n) { return n.ends_op; });
  if (ops < 2 || !seen_windows_.insert(hash64(c.key)).second) return false;
  if (seen_windows_.size() > kMaxSeenWindows) seen_windows_.clear();
  if (!programs_->disk().enabled()) return true;
  try {
    make_program(d, c, true);
  } catch (const Error&) {
    // Op by op it is seen what is wrong.
  }
  return !c.program;
}

void Runtime::make_program(Device& d, Call& c, bool stored_only) {
  const trace::Window& w = d.window;
  const Stopwatch watch;
  const int64_t compiles = counters().compiles;
  const trace::Lowered lowered = trace::lower(w, c.live, c.donated, instances_.target());
  auto p = programs_->make(lowered, devices_.size() > 1, stored_only);
  if (!p) return;
  if (counters().compiles != compiles) tell_compile(w, watch.seconds());
  for (const trace::ValuePtr& v : w.parameters()) p->parameter_types.push_back(v->type);
  for (int32_t o : c.live) p->output_types.push_back(w.outputs()[static_cast<size_t>(o)]->type);
  check_outputs(*p);
  programs_->insert(c.key, p);
  c.program = std::move(p);
  for (const trace::Node& n : w.nodes()) {
    if (n.inst->id >= seen_instances_.size()) seen_instances_.resize(instances_.size());
    seen_instances_[n.inst->id] = true;
  }
}

// The values that the launch took in `consumed` are gone, whether it succeeds or not.
std::optional<Error> Runtime::launch(Device& d, Call& c,
                                     std::vector<const trace::Value*>& consumed) {
  trace::Window& w = d.window;
  if (!c.needed) return std::nullopt;
  try {
    if (!c.program) make_program(d, c);
    check_memory(d, *c.program, c.donated);
    w.release_overwritten();
    upload_packs(d, *c.program);
    for (size_t i = 0; i < c.donated.size(); ++i) {
      if (c.donated[i]) consumed.push_back(w.parameters()[i].get());
    }
    execute(d, *c.program, c.live, c.donated);
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kMemory, "the host is out of memory");
  }
}

// Runs the window as one program. What fails is run again node by node: only what fails alone
// fails, and the error names it. Null when nothing does.
Runtime::ErrorPtr Runtime::run(Device& d, Call c) {
  trace::Window& w = d.window;
  std::vector<const trace::Value*> consumed;
  const std::optional<Error> e = launch(d, c, consumed);
  if (!e) {
    w.clear();
    return nullptr;
  }
  trace::Recording r = w.take();
  ErrorPtr failure;
  if (r.nodes.size() == 1) {
    failure = fail(r.outputs, e->kind, cat(e->text, "\n  in ", describe(r.nodes[0])));
  } else if (!consumed.empty()) {
    failure = fail(r.outputs, e->kind,
                   cat(e->text, "\n  first: ", describe(r.nodes.front()),
                       "\n  last: ", describe(r.nodes.back())));
  } else {
    failure = run_in_pieces(d, r, nodes_between(0, r.nodes.size()));
    if (!failure) {
      TPU_LOG(LogLevel::kWarning, r.nodes.size(),
              " ops could not run as one program and ran one by one: ", e->text,
              "; the first: ", describe(r.nodes.front()));
    }
  }
  if (failure) r.restore(consumed);
  return failure;
}

// Ops, each alone but for those that follow each other and have all run before: their order may
// come back.
std::vector<NodeRange> Runtime::pieces(const trace::Recording& r) const {
  std::vector<NodeRange> all;
  const auto is_new = [&](const trace::Node& n) {
    return n.inst->id >= seen_instances_.size() || !seen_instances_[n.inst->id];
  };
  bool extend = false;  // the last piece may take one more op
  for (const auto& [begin, end] : ops_of(r)) {
    bool known = true;
    for (size_t i = begin; i < end; ++i) known &= !is_new(r.nodes[i]);
    if (known && extend) {
      all.back().second = end;
    } else {
      all.emplace_back(begin, end);
    }
    extend = known;
  }
  return all;
}

// Runs the nodes of each piece as one program, or op by op where that is cold.
Runtime::ErrorPtr Runtime::run_in_pieces(Device& d, trace::Recording& r,
                                         const std::vector<NodeRange>& pieces) {
  trace::Window& w = d.window;
  ErrorPtr first;
  for (const auto& [begin, end] : pieces) {
    ErrorPtr failure = failed_input(r, begin, end);
    if (failure && end - begin == 1) {
      const auto [out, out_end] = r.outputs_of(begin);
      mark_failed(std::span(r.outputs).subspan(out, out_end - out), failure);
      r.release_after(begin);
      continue;
    }
    if (failure) {
      failure = run_in_pieces(d, r, nodes_between(begin, end));
    } else {
      for (size_t i = begin; i < end; ++i) w.append(r, i);
      r.release_after(end - 1);
      w.adopt_overwritten(r);
      Call c = prepare(d, kDonateFromBytes);
      if (is_cold(d, c)) {
        trace::Recording part = w.take();
        failure = run_in_pieces(d, part, ops_of(part));
        if (failure) part.restore({});
      } else {
        failure = run(d, std::move(c));
      }
    }
    if (!first) first = failure;
  }
  return first;
}

void Runtime::mark_failed(std::span<const trace::ValuePtr> values, const ErrorPtr& failure) {
  for (const trace::ValuePtr& v : values) {
    if (!v || v->state != trace::Value::State::kPending) continue;
    v->state = trace::Value::State::kFailed;
    v->failure = failure;
  }
}

Runtime::ErrorPtr Runtime::fail(std::span<const trace::ValuePtr> values, ErrorKind kind,
                                std::string text) {
  auto failure = std::make_shared<const Error>(kind, std::move(text));
  mark_failed(values, failure);
  return failure;
}

void Runtime::upload_packs(Device& d, Program& p) {
  const trace::Packs& packs = d.window.packs();
  if (p.pack_device == d.index && packs.same_bits(p.packs)) return;
  p.pack_buffers.clear();
  auto up = [&](const auto& v, pjrt::ElementType t) {
    if (v.empty()) return;
    const auto n = static_cast<int64_t>(v.size());
    counters().bytes_h2d += n * static_cast<int64_t>(sizeof v[0]);
    p.pack_buffers.push_back(client_
                                 ->buffer_from_host({v.data(), t, std::span(&n, 1)},
                                                    pjrt::HostSemantics::kCopyDuringCall,
                                                    d.pjrt.handle())
                                 .buffer);
  };
  up(packs.f32, pjrt::ElementType::kF32);
  up(packs.f64, pjrt::ElementType::kF64);
  up(packs.i32, pjrt::ElementType::kS32);
  up(packs.i64, pjrt::ElementType::kS64);
  p.packs = packs;
  p.pack_device = d.index;
}

void Runtime::check_memory(Device& d, const Program& p, const std::vector<bool>& donated) {
  int64_t need = p.temporary_bytes - d.window.overwritten_bytes();
  for (const trace::Type* t : p.output_types) need += t->size_bytes();
  for (size_t i = 0; i < donated.size(); ++i) {
    if (donated[i]) need -= d.window.parameters()[i]->type->size_bytes();
  }
  require(d, need, "the program needs ");
}

void Runtime::require(Device& d, int64_t bytes, const char* what) const {
  const int64_t used = d.memory.current_bytes.load(std::memory_order_relaxed);
  const int64_t limit = d.memory_limit_bytes.load(std::memory_order_relaxed);
  if (used + bytes <= limit) [[likely]]
    return;
  const auto text = [](int64_t n) {
    return format_bytes(static_cast<uint64_t>(std::max<int64_t>(n, 0)));
  };
  TPU_THROW(ErrorKind::kMemory, "out of memory on tpu:", d.index, ": ", what, text(bytes), ", ",
            text(limit - used), " of ", text(limit), " are free; ", memory_report(d));
}

std::string Runtime::memory_report(Device& d) const {
  struct Live {
    int64_t size;
    const trace::Type* type;
  };
  std::vector<Live> live;
  trace::for_each_slot([&](const trace::Slot& s) {
    if (s.device != d.index || !s.value || s.value->state != trace::Value::State::kReady) return;
    live.push_back({s.value->type->size_bytes(), s.value->type});
  });
  std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.size > b.size; });
  std::string text = "largest live tensors:";
  for (size_t i = 0; i < std::min<size_t>(live.size(), 5); ++i) {
    text += cat(i ? ", " : " ", hlo::to_string(*live[i].type), " (",
                format_bytes(static_cast<uint64_t>(live[i].size)), ")");
  }
  return live.empty() ? "no tensor is live" : text;
}

void Runtime::check_types(const Program& p, std::span<const trace::ValuePtr> arguments) {
  for (size_t i = 0; i < p.parameter_types.size(); ++i) {
    TPU_CHECK(arguments[i]->type == p.parameter_types[i], ErrorKind::kInternal, "argument ", i,
              " is ", hlo::to_string(*arguments[i]->type), ", the program takes ",
              hlo::to_string(*p.parameter_types[i]));
  }
}

void Runtime::execute(Device& d, Program& p, const std::vector<int32_t>& live,
                      const std::vector<bool>& donated) {
  const trace::Window& w = d.window;
  check_types(p, w.parameters());
  std::vector<PJRT_Buffer*> args;
  args.reserve(w.parameters().size() + 4);
  for (const trace::ValuePtr& v : w.parameters()) args.push_back(buffer_of(*v).buffer.handle());
  for (const pjrt::Buffer& b : p.pack_buffers) args.push_back(b.handle());
  const size_t flags = p.assertions ? 1 : 0;
  std::vector<PJRT_Buffer*> outputs(p.output_types.size() + flags, nullptr);
  pjrt::Launch launch;
  launch.args = args;
  launch.outputs = outputs;
  launch.device = devices_.size() > 1 ? d.pjrt.handle() : nullptr;
  launch.want_completion = true;
  pjrt::Event done = p.executable.execute(launch);
  ++counters().executes;
  const std::vector<SharedChecks> checks = checks_of_outputs(
      d, p, live, flags ? pjrt::Buffer(client_->api(), outputs.back()) : pjrt::Buffer());
  // What was donated is gone, or is the result: it is not counted twice.
  for (size_t i = 0; i < donated.size(); ++i) {
    if (donated[i]) w.parameters()[i]->payload.reset();
  }
  for (size_t i = 0; i < live.size(); ++i) {
    trace::Value& v = *w.outputs()[static_cast<size_t>(live[i])];
    auto made = std::make_unique<DeviceBuffer>(pjrt::Buffer(client_->api(), outputs[i]),
                                               p.output_types[i]->size_bytes(), d.memory);
    if (!checks.empty()) made->checks = checks[i];
    v.payload = std::move(made);
    v.state = trace::Value::State::kReady;
  }
  d.launches.push(std::move(done));
}

double Runtime::time_launch(Device& d, int rounds) {
  trace::Window& w = d.window;
  TPU_CHECK(!w.empty(), "nothing is recorded");
  Call c = prepare(d, INT64_MAX);
  TPU_CHECK(c.needed, "nothing that is recorded is needed");
  if (!c.program) make_program(d, c);
  const auto p = c.program;
  upload_packs(d, *p);
  std::vector<PJRT_Buffer*> args;
  for (const trace::ValuePtr& v : w.parameters()) args.push_back(buffer_of(*v).buffer.handle());
  for (const pjrt::Buffer& b : p->pack_buffers) args.push_back(b.handle());
  std::vector<PJRT_Buffer*> outputs(p->output_types.size() + (p->assertions ? 1 : 0));
  double least = 1e9;
  for (int i = 0; i < rounds; ++i) {
    pjrt::Launch launch;
    launch.args = args;
    launch.outputs = outputs;
    launch.device = devices_.size() > 1 ? d.pjrt.handle() : nullptr;
    launch.want_completion = true;
    const Stopwatch launching;
    const pjrt::Event done = p->executable.execute(launch);
    std::vector<pjrt::Buffer> results;
    for (PJRT_Buffer* b : outputs) results.emplace_back(client_->api(), b);
    const double launched = launching.seconds();
    done.await();
    const Stopwatch releasing;
    results.clear();
    least = std::min(least, launched + releasing.seconds());
  }
  return least;
}

void Runtime::check_copy(Device& d, int64_t size_bytes) {
  try {
    require(d, size_bytes, "a copy needs ");
  } catch (const Error&) {
    ++d.memory.ooms;
    throw;
  }
}

trace::ValuePtr Runtime::upload(Device& d, const void* data, const trace::Type* type) {
  const int64_t size = type->size_bytes();
  check_copy(d, size);
  trace::ValuePtr v = trace::make_value(type, d.index);
  pjrt::Upload up =
      client_->buffer_from_host({data, element_type(type->dtype), type->dims},
                                pjrt::HostSemantics::kCopyDuringCall, d.pjrt.handle());
  v->payload = std::make_unique<DeviceBuffer>(std::move(up.buffer), size, d.memory);
  v->state = trace::Value::State::kReady;
  counters().bytes_h2d += size;
  d.uploaded_bytes += size;
  if (events_kept()) add_event({.kind = Event::Kind::kUpload, .where = line_here(), .bytes = size});
  return v;
}

void Runtime::make_ready(const trace::ValuePtr& v, FlushReason why) {
  Device& d = device(v->device);
  const bool pending = v->state == trace::Value::State::kPending;
  TPU_CHECK(
      v->state != trace::Value::State::kPlaceholder && (!pending || v->epoch == d.window.epoch()),
      "the program is being traced: a tensor of it has no value that could be read, by "
      ".item(), .cpu(), print or an if",
      current_line(), "; compute with tensors (torch.where), or move this out of what is traced");
  if (pending) flush(d, why);
  if (v->state == trace::Value::State::kFailed) throw Error(*v->failure);
}

trace::ValuePtr Runtime::copy_to(Device& to, const trace::ValuePtr& v) {
  check_copy(to, v->type->size_bytes());
  trace::ValuePtr r = trace::make_value(v->type, to.index);
  auto made = std::make_unique<DeviceBuffer>(buffer_of(*v).buffer.copy_to_device(to.pjrt.handle()),
                                             v->type->size_bytes(), to.memory);
  made->checks = buffer_of(*v).checks;
  r->payload = std::move(made);
  r->state = trace::Value::State::kReady;
  return r;
}

void Runtime::await(const trace::ValuePtr& v) {
  buffer_of(*v).buffer.await();
  CheckList& untold = device(v->device).checks;
  if (const SharedChecks checks = buffer_of(*v).checks) {
    for (const auto& c : *checks) {
      const auto failure = c->failure();
      if (!failure) continue;
      untold.forget(*c);
      throw Error(*failure);
    }
  }
  untold.tell(false);
}

void Runtime::download(const trace::ValuePtr& v, void* destination, int64_t size_bytes) {
  const Stopwatch watch;
  await(v);
  const pjrt::Buffer& b = buffer_of(*v).buffer;
  if (on_cpu_ && b.is_on_cpu()) {
    std::memcpy(destination, reinterpret_cast<const void*>(b.unsafe_pointer()),
                static_cast<size_t>(size_bytes));
  } else {
    b.to_host(destination, static_cast<size_t>(size_bytes)).await();
  }
  note_download(watch, size_bytes);
}

void Runtime::read(const trace::ValuePtr& v, int64_t size_bytes,
                   const std::function<void(const void*)>& reader) {
  const Stopwatch watch;
  await(v);
  const pjrt::Buffer& b = buffer_of(*v).buffer;
  if (on_cpu_ && b.is_on_cpu()) {
    reader(reinterpret_cast<const void*>(b.unsafe_pointer()));
  } else {
    std::vector<std::byte> copy(static_cast<size_t>(v->type->size_bytes()));
    b.to_host(copy.data(), copy.size()).await();
    reader(copy.data());
  }
  note_download(watch, size_bytes);
}

void Runtime::wait(Device& d) {
  for (const auto& e : d.launches.pending()) e->await();
  d.checks.tell(true);
}

std::shared_ptr<Marker> Runtime::mark(Device& d, bool timed) {
  return Marker::make(d.launches.pending(), timed);
}

std::vector<SharedChecks> Runtime::checks_of_outputs(Device& d, Program& p,
                                                     const std::vector<int32_t>& live,
                                                     pjrt::Buffer flags) {
  const trace::Window& w = d.window;
  const auto parameter_checks = [&](size_t i) -> const SharedChecks& {
    return buffer_of(*w.parameters()[i]).checks;
  };
  const size_t parameters = w.parameters().size();
  bool any = p.assertions != nullptr;
  for (size_t i = 0; i < parameters && !any; ++i) any = parameter_checks(i) != nullptr;
  if (!any) return {};
  static const std::vector<trace::Assertion> none;
  const auto& assertions = p.assertions ? *p.assertions : none;
  if (p.dependencies.empty()) p.dependencies = trace::dependencies(w, live, assertions);

  // Many outputs depend on the same: they share what was merged for the first.
  using Inherited = std::vector<SharedChecks>;
  std::vector<std::pair<Inherited, SharedChecks>> known;
  const auto inherited = [&](const std::vector<bool>& depends, size_t upto,
                             const Checks& own) -> SharedChecks {
    Inherited from;
    for (size_t i = 0; i < parameters; ++i) {
      const SharedChecks& c = parameter_checks(i);
      if (depends[i] && c && std::ranges::find(from, c) == from.end()) from.push_back(c);
    }
    auto it = std::ranges::find(known, from, &decltype(known)::value_type::first);
    if (it == known.end()) {
      SharedChecks all;
      for (const SharedChecks& c : from) all = merged(c, all);
      it = known.insert(it, {std::move(from), std::move(all)});
    }
    const SharedChecks all = it->second;
    auto mine = std::make_shared<Checks>();
    for (size_t a = 0; a < upto; ++a) {
      if (depends[parameters + a]) mine->push_back(own[a]);
    }
    return mine->empty() ? all : merged(all, mine);
  };

  Checks own;
  if (p.assertions) {
    const auto shared = std::make_shared<Flags>(std::move(flags), assertions.size(), on_cpu_);
    for (size_t a = 0; a < assertions.size(); ++a) {
      own.push_back(std::make_shared<Check>(shared, a, assertions[a],
                                            w.nodes()[assertions[a].node].location,
                                            inherited(p.dependencies[a], a, own)));
    }
    d.checks.add(own);
  }
  std::vector<SharedChecks> all;
  for (size_t o = 0; o < live.size(); ++o)
    all.push_back(inherited(p.dependencies[assertions.size() + o], assertions.size(), own));
  return all;
}

void Runtime::shutdown() {
  for (auto& d : devices_) {
    for (const auto& e : d->launches.pending()) {
      try {
        e->await();
      } catch (const Error&) {
        // The process ends; nobody is left to tell.
      }
    }
  }
}

}  // namespace tpu::runtime
