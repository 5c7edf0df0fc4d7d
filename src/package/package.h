// A package (.tpt2): one program with its weights, in a zip archive of stored members.
//
//   package.json         what the program takes and gives (docs/adr/0025)
//   program.mlir         StableHLO
//   weights.safetensors  the arguments that are no inputs
//   executable           for one plugin build and kind of processor or TPU; may be missing
//
// What is read here is checked: a file that is none, was cut short or contradicts itself throws
// kValue. Views are valid while the Package lives.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "package/array.h"
#include "package/zip.h"

namespace tpu::package {

// The highest format of package.json that is known.
constexpr int kFormat = 1;

struct Argument {
  enum class Kind : uint8_t { kInput, kWeight, kGenerator };
  std::string name;
  Kind kind = Kind::kInput;
  TensorType type;
  int updated_by = -1;  // the result that is its new value
};

struct Result {
  std::string name;
  bool is_output = true;  // else the new value of an argument
  TensorType type;
};

struct Assertion {
  ErrorKind kind = ErrorKind::kInvalid;
  std::string text;  // "{}" stands for the value
};

class Package {
 public:
  explicit Package(const std::string& path);

  const std::string& path() const { return zip_.path(); }
  const std::string& name() const { return name_; }
  const std::string& platform() const { return platform_; }  // "cpu", "tpu"
  const std::string& topology() const { return topology_; }  // of a TPU; may be empty
  const std::vector<Argument>& arguments() const { return arguments_; }
  const std::vector<Result>& results() const { return results_; }
  const std::vector<Assertion>& assertions() const { return assertions_; }

  std::string_view program() { return zip_.read("program.mlir"); }
  // Empty where there is none.
  std::string_view executable();
  std::string_view weight(const Argument& a) const;

 private:
  void read_signature();
  void read_weights();

  ZipReader zip_;
  std::string name_, platform_, topology_;
  std::vector<Argument> arguments_;
  std::vector<Result> results_;
  std::vector<Assertion> assertions_;
  std::map<std::string, std::string_view, std::less<>> weights_;
};

}  // namespace tpu::package
