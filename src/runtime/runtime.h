// The state of the process: plugin, devices, the open windows, caches. Started by the first use of
// a device.
//
// `mutex()` is the recorder's lock: it guards the windows, the slots' values, the instance table
// and the program cache. A flush runs under it, compile included; waiting for results never does.
// Callers must not hold the GIL while they take it (bridge/ sees to that).
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pjrt/ffi.h"
#include "runtime/cache.h"
#include "runtime/counters.h"
#include "runtime/launch.h"
#include "runtime/memory.h"
#include "runtime/plugin.h"
#include "trace/instance.h"
#include "trace/slot.h"
#include "trace/trace.h"
#include "trace/window.h"

namespace tpu::runtime {

enum class Mode : uint8_t {
  kDebug,   // every op alone; waits for it
  kStrict,  // every op alone, asynchronous
  kFused,   // ops are recorded and run together at a flush
};

class Device {
 public:
  Device(int32_t number, const pjrt::Device& device)
      : index(number), pjrt(device), window(number) {}

  const int32_t index;
  const pjrt::Device& pjrt;
  trace::Window window;
  MemoryCounts memory;
  LaunchQueue launches;
  CheckList checks;
  int64_t uploaded_bytes = 0;  // since the last flush
  // The window ends an optimizer's step and waits (Runtime::end_step): what it computes and, where
  // that is new, how many of its results were alive then and the key that it had, as hashes.
  struct Step {
    uint64_t content = 0;
    size_t live = 0;
    uint64_t key = 0;
  };
  std::optional<Step> waiting_step;
  int64_t total_memory_bytes = 0;
  std::atomic<int64_t> memory_limit_bytes = 0;  // of it, what may be used
};

class Runtime {
 public:
  // Starts it on first use. Throws kDevice when no plugin can be used, or in a forked child.
  static Runtime& get();
  static bool started();
  static bool in_bad_fork();
  // Without starting: 1 or the setting on the CPU plugin, the chips on a TPU machine, 0 with no
  // plugin.
  static int device_count();

  std::mutex& mutex() { return mutex_; }
  trace::InstanceTable& instances() { return instances_; }
  ProgramCache& programs() { return *programs_; }
  const pjrt::Client& client() const { return *client_; }
  const Plugin& plugin() const { return plugin_; }
  bool on_cpu_plugin() const { return on_cpu_; }
  int devices() const { return static_cast<int>(devices_.size()); }
  Device& device(int index) { return *devices_[static_cast<size_t>(index)]; }

  // Modes: this thread's innermost, else the process's.
  Mode mode() const;

  // ---- Under the lock.
  // Where this thread records: its trace's window on the device, else the device's.
  trace::Window& window_of(Device& d);
  // The instance of a call: of this thread's trace on the device, else of the process.
  const trace::Instance& instance_of(Device& d, std::string_view key);
  // Records one call where this thread records: into its trace, else into the device's window.
  void record(Device& d, const trace::Instance& inst, std::span<const trace::ValuePtr> inputs,
              std::span<const ops::Number> numbers, trace::RandomState random,
              trace::ValuePtr* outputs);
  // Launches what is recorded; pending values become ready or failed. A window that is seen for the
  // first time is run op by op, with programs that other windows share; the next time it is
  // compiled as one. Ops that fail together are run one by one, so that only those fail which must.
  // Throws the first failure, with what forced the flush.
  void flush(Device& d, FlushReason why);
  // An optimizer's step is over, a good place for a cut: launches what is recorded, at once or, as
  // step_launches_ says, with the next read.
  void end_step(Device& d);
  // After each recorded call of a kernel: strict modes flush, fused mode when the window is full.
  void after_record(Device& d);
  // A ready value from host memory, dense and row-major. Copies during the call.
  trace::ValuePtr upload(Device& d, const void* data, const trace::Type* type);
  // The value flushed; throws its failure.
  void make_ready(const trace::ValuePtr& v, FlushReason why);
  // Launches a program that was not recorded, after all that is: its results, ready. `donated`: the
  // arguments whose memory the program may take; those have none afterwards. Throws what the
  // plugin says, or kMemory.
  std::vector<trace::ValuePtr> call(Device& d, Program& p,
                                    std::span<const trace::ValuePtr> arguments,
                                    const std::vector<bool>& donated);
  // A ready value copied to another device.
  trace::ValuePtr copy_to(Device& to, const trace::ValuePtr& v);

  // ---- Without the lock.
  // Copies a ready value to host memory (dense, row-major). Throws the error of an
  // assertion that the value depends on, or that this thread has launched and that was not told.
  void download(const trace::ValuePtr& v, void* destination, int64_t size_bytes);
  // The same for a reader that takes `size_bytes` of it: called with the value's memory, which on
  // the CPU plugin is the device's own.
  void read(const trace::ValuePtr& v, int64_t size_bytes,
            const std::function<void(const void*)>& reader);
  // Waits for everything launched on the device; throws the first failed assertion that was not
  // told.
  void wait(Device& d);
  std::shared_ptr<Marker> mark(Device& d, bool timed);

  // For bench/: seconds that the plugin alone takes for a launch of what is recorded and the
  // release of its results, the least of `rounds`. Donates nothing and leaves the window as it is.
  // Under the lock.
  double time_launch(Device& d, int rounds);

  void shutdown();

 private:
  using ErrorPtr = std::shared_ptr<const Error>;
  Runtime();
  void start();
  // A launch of what is in the window, as far as it is decided before anything is compiled.
  struct Call {
    std::vector<int32_t> live;
    std::vector<bool> donated;
    bool needed = true;  // something is live, or asserted
    std::string key;
    std::shared_ptr<Program> program;  // null when it is not in memory
  };
  Call prepare(Device& d, int64_t donate_from_bytes = 0);
  bool is_cold(Device& d, Call& c);
  void note_end_of_wait(Device& d, const Call& c, FlushReason why);
  void make_program(Device& d, Call& c, bool stored_only = false);
  ErrorPtr run(Device& d, Call c);
  std::optional<Error> launch(Device& d, Call& c, std::vector<const trace::Value*>& consumed);
  std::vector<trace::NodeRange> pieces(const trace::Recording& r) const;
  ErrorPtr run_in_pieces(Device& d, trace::Recording& r,
                         const std::vector<trace::NodeRange>& pieces);
  void await(const trace::ValuePtr& v);  // and throws, as download says
  static void mark_failed(std::span<const trace::ValuePtr> values, const ErrorPtr& failure);
  static ErrorPtr fail(std::span<const trace::ValuePtr> values, ErrorKind kind, std::string text);
  void execute(Device& d, Program& p, const std::vector<int32_t>& live,
               const std::vector<bool>& donated);
  void upload_packs(Device& d, Program& p);
  void check_copy(Device& d, int64_t size_bytes);
  // Throws kMemory when that many more bytes are over the limit.
  void require(Device& d, int64_t bytes, const char* what) const;
  // What each live output of the window depends on, given the program's flags, if it has any.
  std::vector<SharedChecks> checks_of_outputs(Device& d, Program& p,
                                              const std::vector<int32_t>& live, pjrt::Buffer flags);
  void check_memory(Device& d, const Program& p, const std::vector<bool>& donated);
  static void check_types(const Program& p, std::span<const trace::ValuePtr> arguments);
  std::string memory_report(Device& d) const;

  std::mutex mutex_;
  Plugin plugin_;
  bool on_cpu_ = true;
  std::unique_ptr<pjrt::Client> client_;
  std::unique_ptr<ProgramCache> programs_;
  trace::InstanceTable instances_;
  std::vector<std::unique_ptr<Device>> devices_;
  bool donation_ = true;
  bool debug_checks_ = false;
  size_t max_nodes_ = 0;
  // Windows that were run op by op, by the hash of their keys, and instances that have run.
  std::unordered_set<uint64_t> seen_windows_;
  std::vector<bool> seen_instances_;
  // When a window that ends a step is launched, by the hash of what it computes. A loop that drops
  // its gradients after the step and then reads its loss gains by waiting for the read: gradients
  // are not stored. Any other loop would leave the device idle meanwhile. The first round tells,
  // and is followed for good, since the two are different programs.
  enum class StepLaunch : uint8_t { kUnknown, kAtOnce, kAtRead };
  std::unordered_map<uint64_t, StepLaunch> step_launches_;
};

// Mode stack of this thread and the process default.
Mode default_mode();
void set_default_mode(Mode m);
void push_mode(Mode m);
void pop_mode();
Mode current_mode();
// Asked where this thread has pushed nothing: a Mode, or -1. Set by bridge/, for threads that run
// another's work.
void set_inherited_mode(int (*f)());

// Custom calls that programs for a CPU plugin may use; set by bridge/ before the start.
struct FfiTarget {
  const char* name;
  pjrt::FfiEntry* entry;
};
void set_lapack(std::span<const FfiTarget> targets);

// The program that this thread traces on a device, or null. A trace is entered and left on one
// thread; threads that run its work (backward) inherit it by number. Traces nest.
int push_trace(trace::Trace* t);  // gives its number, 1 to 127
void pop_trace();
trace::Trace* current_trace(int32_t device);
void set_inherited_trace(int (*f)());  // 0: none

pjrt::ElementType element_type(trace::DType t);

}  // namespace tpu::runtime
