#include "base/hash.h"

#include <bit>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/test.h"

namespace tpu {
namespace {

TEST(hash_is_stable) {
  // Stored on disk: a change of these values needs a new version of the stored keys.
  EXPECT_EQ(Hasher().finish().hex(), std::string("4db5ca9d49e468655fe87fd69b1b91d3"));
  EXPECT_EQ(hash128("abc").hex(), std::string("d418a044d80a542ac73bc477652f7a85"));
  EXPECT_EQ(hash128(std::string(5000, 'x')).hex(), std::string("f02f3bf6eb7f98b18cd7376ca78723d0"));
}

TEST(hash_tells_similar_inputs_apart) {
  std::set<Hash128> seen;
  size_t count = 0;
  const auto expect_new = [&](const Hash128& h) {
    seen.insert(h);
    ++count;
  };
  // Lengths, also across the change to the striped form.
  for (size_t n = 0; n < 3000; ++n) expect_new(hash128(std::string(n, '\0')));
  // One bit anywhere.
  std::string text(2048, '\0');
  for (size_t i = 0; i < text.size() * 8; ++i) {
    text[i / 8] = static_cast<char>(1 << (i % 8));
    expect_new(hash128(text));
    text[i / 8] = 0;
  }
  // Small words, their order and their number.
  for (uint64_t a = 0; a < 100; ++a) {
    for (uint64_t b = 0; b < 100; ++b) expect_new(Hasher(7).add(a).add(b).finish());
  }
  EXPECT_EQ(seen.size(), count);
  std::set<uint64_t> low, high;
  for (const Hash128& h : seen) {
    low.insert(h.low);
    high.insert(h.high);
  }
  EXPECT_EQ(low.size(), count);
  EXPECT_EQ(high.size(), count);
}

TEST(hash_frames_its_parts) {
  EXPECT_TRUE(Hasher().add("ab").add("c").finish() != Hasher().add("a").add("bc").finish());
  EXPECT_TRUE(Hasher().add(std::vector<int>{1}).add(std::vector<int>{}).finish() !=
              Hasher().add(std::vector<int>{}).add(std::vector<int>{1}).finish());
  EXPECT_TRUE(Hasher().add(0.0).finish() != Hasher().add(-0.0).finish());
  EXPECT_TRUE(Hasher(1).finish() != Hasher(2).finish());
  EXPECT_TRUE(hash128("a", 1) != hash128("a", 2));
}

TEST(hash_flips_half_of_its_bits) {
  int flipped = 0, least = 128;
  for (int bit = 0; bit < 64; ++bit) {
    const Hash128 a = Hasher().add(uint64_t{0}).finish();
    const Hash128 b = Hasher().add(uint64_t{1} << bit).finish();
    const int n = std::popcount(a.low ^ b.low) + std::popcount(a.high ^ b.high);
    flipped += n;
    least = std::min(least, n);
  }
  EXPECT_TRUE(flipped > 60 * 64 && flipped < 68 * 64);
  EXPECT_TRUE(least > 40);
}

TEST(hash_file_is_the_hash_of_the_content) {
  const std::string path = cat("hash_test_", reinterpret_cast<uintptr_t>(&path), ".tmp");
  const std::string content(100'000, 'q');
  std::ofstream(path) << content;
  EXPECT_EQ(hash_file(path), hash128(content));
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(hash_file(path), hash128(""));
  std::remove(path.c_str());
  EXPECT_THROW_MSG(hash_file(path), "cannot open");
}

}  // namespace
}  // namespace tpu
