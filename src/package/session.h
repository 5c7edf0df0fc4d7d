// A package on a device: executable loaded, weights uploaded, ready to be called.
//
// One device, one call at a time. What the program updates (buffers, inputs that the module writes
// in place, the generator's state) stays: the next call sees it, except for inputs, which are given
// anew.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "package/package.h"
#include "pjrt/client.h"

namespace tpu::package {

struct Array {
  TensorType type;
  std::string data;  // row-major
};
using Arrays = std::vector<std::pair<std::string, Array>>;

class Session {
 public:
  // Throws kDevice for a plugin that cannot be used, kValue for a package made for other devices.
  Session(Package package, const std::string& plugin, uint64_t seed);

  const Package& package() const { return package_; }
  const pjrt::Client& client() const { return *client_; }
  // Why the StableHLO was compiled; empty where the package's executable was taken.
  const std::string& why_compiled() const { return why_compiled_; }

  // The inputs of a .npz file, checked and uploaded. Throws kValue for one that is missing, unknown
  // or of another type.
  void set_inputs(ZipReader& npz);
  // One launch, and the wait for its end. Throws what the program asserts.
  void run();
  // After a run: what the program gives, and under "updated.<name>" the inputs and weights that it
  // wrote.
  Arrays results() const;

 private:
  void load();
  pjrt::Buffer upload(const TensorType& type, std::string_view data) const;
  void check_assertions(const pjrt::Buffer& flags) const;
  std::string download(const pjrt::Buffer& b, size_t size_bytes) const;

  Package package_;
  std::unique_ptr<pjrt::Client> client_;
  pjrt::Executable executable_;
  std::string why_compiled_;
  std::vector<pjrt::Buffer> arguments_;
  std::vector<pjrt::Buffer> results_;  // empty handles where an argument has taken the buffer
};

}  // namespace tpu::package
