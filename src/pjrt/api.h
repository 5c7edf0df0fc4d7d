// A loaded PJRT plugin: the table of functions behind one shared library.
//
// `call` is the only way this layer enters a plugin: it checks that the plugin has the function and
// turns a PJRT_Error into tpu::Error. The argument structs are wrapped in `Args`, which sets
// struct_size and keeps zeroed room behind the struct, so that a newer plugin never reads or writes
// past what our header knows.
//
// A library is never unloaded, since its threads may outlive us. Everything here may be used from
// any thread. After a fork the plugin's threads are gone and a call would hang: in a child of a
// process with a live Client every call throws, and handles are dropped without entering the
// plugin.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "pjrt/error.h"
#include "pjrt_c_api.h"

namespace tpu::pjrt {

template <class T>
struct Args : T {
  Args() : T{} { this->struct_size = sizeof(T); }

 private:
  std::byte spare_[128] = {};
};

using NamedValue = std::variant<std::string, int64_t, bool, float, std::vector<int64_t>>;
using NamedValues = std::map<std::string, NamedValue, std::less<>>;
std::string to_string(const NamedValue& value);
NamedValues named_values(const PJRT_NamedValue* values, size_t count);

// Owns the C structs that describe `values`, which must outlive it.
class NamedValueList {
 public:
  explicit NamedValueList(const NamedValues& values);
  const PJRT_NamedValue* data() const { return list_.data(); }
  size_t size() const { return list_.size(); }

 private:
  std::vector<PJRT_NamedValue> list_;
};

// Numbers of the PJRT C API, here because the header of the build may be older than the plugin.
enum class ExtensionType : int {
  kProfiler = 1,
  kStream = 3,
  kLayouts = 4,
  kFfi = 5,
  kMemoryDescriptions = 6,
  kRawBuffer = 8,
  kPhaseCompile = 9,
  kCrossHostTransfers = 12,
  kExecutableMetadata = 13,
  kCallback = 14,
  kHostAllocator = 15,
  kTpuTopology = 16,
  kTpuExecutable = 17,
  kMegascale = 18,
  kShardings = 19,
  kAbiVersion = 20,
  kCollectives = 21,
  kMultiSlice = 22,
  kHostMemoryAllocator = 23,
  kXlaTransform = 24,
};

namespace detail {
inline std::atomic<bool> in_fork_child{false};
// True in a process forked from one that had a Client.
inline bool forked() { return in_fork_child.load(std::memory_order_relaxed); }
[[noreturn]] void throw_forked();
// A Client is counted while it lives: a fork of a process without one is harmless.
void count_client(int change);

// The number of an enumerator that may be younger than our header: to read it as its own type would
// be undefined.
template <class E>
int enum_number(const E& value) {
  static_assert(sizeof(E) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// "PJRT_Client_Create" from &PJRT_Api::PJRT_Client_Create.
template <auto kFunction>
constexpr std::string_view function_name() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  constexpr size_t kBegin = kText.rfind("PJRT_Api::") + 10;
  return kText.substr(kBegin, kText.find_first_of(";]", kBegin) - kBegin);
}
}  // namespace detail

class Api {
 public:
  // Loads the library, checks its version and runs PJRT_Plugin_Initialize unless that was done
  // before in this process. Silences the plugin's own log (TF_CPP_MIN_LOG_LEVEL=3) unless that
  // variable is set or our log level is debug. Refuses flags in XLA_FLAGS that the plugin does not
  // know, since those would end the process.
  static std::shared_ptr<const Api> load(const std::string& path);

  const std::string& path() const { return path_; }
  int minor_version() const { return api_->pjrt_api_version.minor_version; }
  // "0.115"
  std::string version() const;
  // What the plugin says of itself: xla_version, stablehlo_current_version,
  // stablehlo_minimum_version, ...
  const NamedValues& attributes() const { return attributes_; }
  // The StableHLO version the plugin was built with, such as {1, 20, 0}; empty when it does not
  // say.
  std::vector<int64_t> stablehlo_version() const;
  // Equal only for the same build of the same library: its build id, else a hash of the file (about
  // 0.1 s for 200 MB, once). An executable serialized by another build may load and compute
  // garbage.
  Hash128 identity() const;

  // The plugin's extension struct, or nullptr.
  const PJRT_Extension_Base* extension(ExtensionType type) const;
  // The numbers of all its extensions.
  std::vector<int> extensions() const;

  template <auto kFunction>
  bool has() const {
    const auto* end = reinterpret_cast<const char*>(&(api_->*kFunction) + 1);
    return static_cast<size_t>(end - reinterpret_cast<const char*>(api_)) <= api_->struct_size &&
           api_->*kFunction != nullptr;
  }

  // The failure, if the plugin reports one; throws only when the function is missing.
  template <auto kFunction, class T>
  std::optional<Failure> try_call(Args<T>& args) const {
    if (detail::forked()) [[unlikely]]
      detail::throw_forked();
    if (!has<kFunction>()) [[unlikely]]
      throw_missing(detail::function_name<kFunction>());
    PJRT_Error* error = (api_->*kFunction)(&args);
    if (error == nullptr) [[likely]]
      return std::nullopt;
    return take_failure(error);
  }

  template <auto kFunction, class T>
  void call(Args<T>& args) const {
    if (auto failure = try_call<kFunction>(args)) [[unlikely]]
      throw_failure(*failure, detail::function_name<kFunction>());
  }

  // For destructors: no exceptions, nothing after a fork.
  template <auto kFunction, class T>
  void call_quietly(Args<T>& args) const noexcept {
    if (detail::forked() || !has<kFunction>()) return;
    if (PJRT_Error* error = (api_->*kFunction)(&args)) drop_error(error);
  }

  // A function that the header of the build may not have, by its place in the table (see
  // api_newer.h); nullptr when the plugin is too old for it.
  template <class Function>
  Function* newer_function(size_t slot) const {
    return reinterpret_cast<Function*>(function_at(slot));
  }

  // Reads and destroys an error of this plugin.
  Failure take_failure(PJRT_Error* error) const;
  void drop_error(PJRT_Error* error) const noexcept;

  const PJRT_Api* c_api() const { return api_; }

  // Only for `load` and tests: a table that is used as it is.
  Api(std::string path, const PJRT_Api* api) : path_(std::move(path)), api_(api) {}

 private:
  [[noreturn]] void throw_missing(std::string_view function) const;
  void (*function_at(size_t slot) const)();

  std::string path_;
  const PJRT_Api* api_;
  NamedValues attributes_;
  mutable std::once_flag identity_once_;
  mutable Hash128 identity_;
};

// Throws when XLA_FLAGS (or `flags`, for tests) holds a flag that does not occur in the library at
// `path`.
void check_xla_flags(const std::string& path, std::string_view flags);

}  // namespace tpu::pjrt
