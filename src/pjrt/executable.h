// A compiled program. `Compiled` answers questions about it; `Executable` is one that is loaded on
// devices and runs. Execution is asynchronous: the outputs are buffers whose content comes later,
// and a failing program shows as the error of their ready events. A plugin checks the byte sizes of
// arguments only: element types and shapes are the caller's promise.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "pjrt/buffer.h"
#include "pjrt/stats.h"

namespace tpu::pjrt {

struct OutputType {
  ElementType element_type;
  std::vector<int64_t> dims;
  bool operator==(const OutputType&) const = default;
};

class Compiled {
 public:
  Compiled() = default;
  Compiled(const Api& api, PJRT_Executable* handle, Hash128 identity);

  const Api& api() const { return program_.api(); }
  // Per device.
  size_t num_outputs() const { return num_outputs_; }
  std::vector<OutputType> output_types() const;
  std::string name() const;
  int num_replicas() const;
  int num_partitions() const;
  int64_t code_size_bytes() const;
  // Equal for equal programs, options and compiler; empty where the plugin has none.
  std::string fingerprint() const;
  std::optional<CompiledMemoryStats> memory_stats() const;
  std::optional<CostAnalysis> cost_analysis() const;

  // The program after optimization, in the plugin's format ("hlo", "hlo_with_config", "mlir").
  struct Program {
    std::string format;
    std::string code;
  };
  std::optional<Program> optimized_program() const;
  // Serialized CompileOptionsProto with every default filled in (API 0.87 and newer).
  std::optional<std::string> compile_options() const;
  // For Client::deserialize of the same plugin build and kind of processor; others refuse it. Not
  // for a program that was itself deserialized: the CPU plugins then write one that loads but lacks
  // its code.
  std::string serialize() const;

 protected:
  Owned<PJRT_Executable> program_;
  Hash128 identity_;
  size_t num_outputs_ = 0;
  bool deserialized_ = false;
};

// One launch on one device. Spans must stay alive during the call only.
struct Launch {
  std::span<PJRT_Buffer* const> args = {};
  std::span<PJRT_Buffer*> outputs =
      {};  // num_outputs() places, filled with handles that the caller then owns
  std::span<const int64_t> non_donatable =
      {};  // indices of args that keep their memory in this launch
  int launch_id = 0;
  PJRT_Device* device = nullptr;  // for portable executables, or one device of several
  bool want_completion = false;
};

class Executable : public Compiled {
 public:
  Executable() = default;
  Executable(const Api& api, PJRT_LoadedExecutable* handle, Hash128 identity,
             bool deserialized = false);

  // Runs on one device. The event is empty unless asked for; waiting for the outputs does not need
  // it. On an error the outputs are null and no argument was consumed unless the message says so.
  Event execute(const Launch& launch) const;

  // Runs on all addressable devices of the program at once: device i takes args[i] (each of equal
  // length) and fills outputs[i]. The events, one a device, are empty unless asked for.
  std::vector<Event> execute_all(std::span<const std::span<PJRT_Buffer* const>> args,
                                 std::span<const std::span<PJRT_Buffer*>> outputs,
                                 std::span<const int64_t> non_donatable = {}, int launch_id = 0,
                                 bool want_completion = false) const;

  // In the order of execute_all; one for an ordinary program, none for a portable one.
  std::vector<PJRT_Device*> devices() const;
  PJRT_LoadedExecutable* handle() const { return loaded_.get(); }

 private:
  Owned<PJRT_LoadedExecutable> loaded_;
};

}  // namespace tpu::pjrt
