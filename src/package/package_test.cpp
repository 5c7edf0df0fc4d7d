#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/test.h"
#include "package/array.h"
#include "package/json.h"
#include "package/zip.h"

namespace tpu::package {
namespace {

namespace fs = std::filesystem;

// A file of the test's own, removed with it.
struct TemporaryFile {
  std::string path =
      (fs::temp_directory_path() / cat("torch_tpu_package_test_", getpid())).string();
  ~TemporaryFile() { fs::remove(path); }
  void write(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  std::string read() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST(json_values) {
  const Json j =
      Json::parse(R"( {"a": [1, -2, true, null], "b": "x\u00e9\ud83d\ude00\n", "c": {}} )", "t");
  EXPECT_EQ(j["a"].array().size(), 4u);
  EXPECT_EQ(j["a"].array()[1].integer(), -2);
  EXPECT_TRUE(j["a"].array()[2].boolean());
  EXPECT_TRUE(j["a"].array()[3].is_null());
  EXPECT_EQ(j["b"].string(), "x\u00e9\U0001f600\n");
  EXPECT_TRUE(j["c"].object().empty());
  EXPECT_TRUE(j.find("d") == nullptr);
  EXPECT_THROW_MSG(j["d"], "has no member");
  EXPECT_THROW_MSG(j["a"].string(), "a text is expected");
}

TEST(json_that_is_none) {
  for (const char* text : {"", "{", "[1,", "[1 2]", R"({"a":1,"a":2})", "tru", "1 2", "\"a",
                           "\"\\x\"", "\"\\ud800\"", "-", "1.2.3", "[\"\n\"]"}) {
    EXPECT_THROW_MSG(Json::parse(text, "t"), "t is no JSON: ");
  }
  EXPECT_THROW_MSG(Json::parse(std::string(1000, '['), "t"), "too many nested values");
}

TEST(crc) {
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc32("12345678"), 0x9ae0daafu);
}

TEST(zip_round_trip) {
  const TemporaryFile file;
  const std::string large(100000, 'x');
  {
    ZipWriter w(file.path);
    w.add("a.npy", "hello");
    w.add("b", large);
    w.add("empty", "");
    w.finish();
  }
  ZipReader r(file.path);
  EXPECT_EQ(r.members().size(), 3u);
  EXPECT_EQ(r.read("a.npy"), "hello");
  EXPECT_EQ(r.read("b"), large);
  EXPECT_EQ(r.read("empty"), "");
  EXPECT_TRUE(!r.contains("c"));
  EXPECT_THROW_MSG(r.read("c"), "has no member c");
}

TEST(zip_that_is_not_finished_leaves_nothing) {
  const TemporaryFile file;
  {
    ZipWriter(file.path).add("a", "b");
  }
  EXPECT_TRUE(!fs::exists(file.path));
  EXPECT_THROW_MSG(ZipWriter("/nowhere/x"), "cannot be written");
}

// Every cut and every changed byte is an error or harmless, never more.
TEST(zip_damage) {
  const TemporaryFile file;
  {
    ZipWriter w(file.path);
    w.add("a", "hello");
    w.add("b", "world");
    w.finish();
  }
  const std::string whole = file.read();
  const auto read_all = [&] {
    try {
      ZipReader r(file.path);
      for (const char* name : {"a", "b"}) r.read(name);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind == ErrorKind::kValue);
    }
  };
  for (size_t n = 0; n < whole.size(); ++n) {
    file.write(whole.substr(0, n));
    EXPECT_THROW_MSG(ZipReader(file.path), "is no zip archive, or is cut short");
    std::string changed = whole;
    changed[n] = static_cast<char>(changed[n] ^ 0x7f);
    file.write(changed);
    read_all();
  }
}

TEST(npy) {
  const TensorType t{&dtype_by_torch_name("int16", "t"), {2, 3}};
  EXPECT_EQ(to_string(t), "int16[2, 3]");
  const std::string data("\1\0\2\0\3\0\4\0\5\0\6\0", 12), bytes = npy(t, data);
  EXPECT_EQ((bytes.size() - data.size()) % 64, 0u);
  NpyArray a = parse_npy(bytes, "t");
  EXPECT_EQ(a.descr, "<i2");
  EXPECT_TRUE(!a.fortran_order);
  EXPECT_EQ(a.dims, t.dims);
  EXPECT_EQ(elements_of(a, t, "t"), data);
  a.fortran_order = true;
  EXPECT_EQ(elements_of(a, t, "t"), std::string("\1\0\3\0\5\0\2\0\4\0\6\0", 12));
  a.descr = ">i2";
  EXPECT_THROW_MSG(elements_of(a, t, "t"), "t is >i2[2, 3], the package takes int16[2, 3]");
  a.descr = "<i2";
  a.data = a.data.substr(1);
  EXPECT_THROW_MSG(elements_of(a, t, "t"), "holds 11 bytes");
}

TEST(npy_that_is_none) {
  const TensorType t{&dtype_by_torch_name("float32", "t"), {}};
  const std::string whole = npy(t, "abcd");
  EXPECT_EQ(parse_npy(whole, "t").dims.size(), 0u);
  for (size_t n = 0; n < whole.size() - 4; ++n)
    EXPECT_THROW_MSG(parse_npy(whole.substr(0, n), "t"), "t ");
  EXPECT_THROW_MSG(dtype_by_torch_name("quint8", "t"), "no element type");
  EXPECT_THROW_MSG(TensorType({t.dtype, {int64_t{1} << 40, int64_t{1} << 40}}).size_bytes(),
                   "too large");
}

}  // namespace
}  // namespace tpu::package
