// Hashes for keys and names of cached things; not for security. `Hasher` takes words and byte
// strings one after the other and is cheap enough to run while recording (two multiplications a
// word). Each step is a permutation of the 128-bit state, so no input loses state. The values are
// the same on every run and machine of the same byte order: they may be stored on disk; a change of
// the algorithm must then change the version in the stored keys.
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace tpu {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Hash128&) const = default;
  // 32 hexadecimal digits.
  std::string hex() const;
};
inline std::string to_string(const Hash128& h) { return h.hex(); }

class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0) : a_(seed ^ kA), b_(seed ^ kB) {}

  Hasher& add(uint64_t word) {
    word *= kA;
    word = std::rotl(word, 31) * kB;
    a_ = (std::rotl(a_ ^ word, 27) + b_) * 5 + kC;
    b_ = (std::rotl(b_ ^ std::rotl(word, 33), 31) + a_) * 5 + kD;
    ++words_;
    return *this;
  }
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  Hasher& add(T value) {
    return add(static_cast<uint64_t>(value));
  }
  // By bits: 0.0 and -0.0 differ, equal NaNs agree.
  Hasher& add(double value) { return add(std::bit_cast<uint64_t>(value)); }
  Hasher& add(const Hash128& h) { return add(h.low).add(h.high); }
  // The length goes in too, so that ("ab", "c") and ("a", "bc") differ.
  Hasher& add(std::string_view bytes);
  Hasher& add(const char* text) { return add(std::string_view(text)); }
  template <class Range>
    requires requires(const Range& r) { r.size(), *r.begin(); } &&
             (!std::is_convertible_v<const Range&, std::string_view>)
  Hasher& add(const Range& range) {
    add(static_cast<uint64_t>(range.size()));
    for (const auto& e : range) add(e);
    return *this;
  }

  Hash128 finish() const;

 private:
  static constexpr uint64_t kA = 0x9e3779b97f4a7c15;
  static constexpr uint64_t kB = 0xd6e8feb86659fd93;
  static constexpr uint64_t kC = 0x52dce72938495ab5;
  static constexpr uint64_t kD = 0x38495ab5a4093822;
  uint64_t a_, b_;
  uint64_t words_ = 0;
};

Hash128 hash128(std::string_view bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);
// Of a file's content (about 5 GB/s when the file is in memory). Throws when it cannot be read.
Hash128 hash_file(const std::string& path);

}  // namespace tpu

template <>
struct std::hash<tpu::Hash128> {
  size_t operator()(const tpu::Hash128& h) const noexcept { return h.low; }
};
