#include "base/hash.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace tpu {
namespace {

uint64_t load_word(const char* p) {
  uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

uint64_t avalanche(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

// Four hashers side by side hide the latency of the multiplications.
Hash128 hash_long(std::string_view bytes, uint64_t seed) {
  std::array<Hasher, 4> lanes = {Hasher(seed), Hasher(seed + 1), Hasher(seed + 2),
                                 Hasher(seed + 3)};
  const size_t blocks = bytes.size() / 32;
  const char* p = bytes.data();
  for (size_t i = 0; i < blocks; ++i, p += 32) {
    for (size_t k = 0; k < 4; ++k) lanes[k].add(load_word(p + 8 * k));
  }
  Hasher all(seed);
  for (const Hasher& lane : lanes) all.add(lane.finish());
  return all.add(bytes.substr(blocks * 32)).add(bytes.size()).finish();
}

}  // namespace

std::string Hash128::hex() const {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

Hasher& Hasher::add(std::string_view bytes) {
  add(static_cast<uint64_t>(bytes.size()));
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) add(load_word(p));
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, left);
    add(word);
  }
  return *this;
}

Hash128 Hasher::finish() const {
  uint64_t a = a_ ^ words_, b = b_ ^ words_;
  a += b;
  b += a;
  a = avalanche(a);
  b = avalanche(b);
  a += b;
  b += a;
  return {a, b};
}

Hash128 hash128(std::string_view bytes, uint64_t seed) {
  return bytes.size() >= 1024 ? hash_long(bytes, seed) : Hasher(seed).add(bytes).finish();
}

uint64_t hash64(std::string_view bytes, uint64_t seed) { return hash128(bytes, seed).low; }

Hash128 hash_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TPU_CHECK(fd >= 0, "cannot open ", path, ": ", std::strerror(errno));
  struct stat info = {};
  void* map = MAP_FAILED;
  const bool known = fstat(fd, &info) == 0;
  const auto size = static_cast<size_t>(info.st_size);
  if (known && size > 0) map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (known && size == 0) return hash128({});
  TPU_CHECK(map != MAP_FAILED, "cannot read ", path, ": ", std::strerror(error));
  const Hash128 hash = hash128({static_cast<const char*>(map), size});
  munmap(map, size);
  return hash;
}

}  // namespace tpu
