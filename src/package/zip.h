// Zip archives whose members are stored, not compressed: packages and NumPy's .npz files.
//
// A file is mapped; a member's bytes are a view of it, valid while the archive lives, checked
// against the archive's CRC-32 the first time they are asked for. Sizes beyond 4 GiB (zip64) are
// read and written. Not safe from several threads.
#pragma once
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::package {

uint32_t crc32(std::string_view bytes);

class ZipReader {
 public:
  struct Member {
    std::string name;
    uint16_t method = 0;  // 0: stored
    uint32_t crc = 0;
    uint64_t size = 0, offset = 0;  // of the local header
    bool checked = false;
  };

  // Throws kValue when the file cannot be read, is cut short or is no zip archive.
  explicit ZipReader(const std::string& path);
  const std::string& path() const { return path_; }
  const std::vector<Member>& members() const { return members_; }
  bool contains(std::string_view name) const;
  // Throws kValue when there is no such member, it is compressed or damaged.
  std::string_view read(std::string_view name);

 private:
  void read_directory();
  // The directory's place, size and number of members, from the archive's end.
  struct End {
    uint64_t offset = 0, size = 0, count = 0;
  };
  End find_end() const;
  template <class T>
  T number(uint64_t at) const;
  void check(bool condition) const;

  std::string path_;
  std::shared_ptr<const void> mapping_;
  std::string_view bytes_;
  std::vector<Member> members_;
};

class ZipWriter {
 public:
  // Written under another name; `finish` renames it to `path`. Errors are kValue.
  explicit ZipWriter(std::string path);
  ~ZipWriter();
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;
  void add(std::string_view name, std::string_view bytes);
  void finish();

 private:
  void write(std::string_view bytes);
  std::string path_, temporary_;
  std::ofstream out_;
  std::string directory_;
  uint64_t at_ = 0, count_ = 0;
};

}  // namespace tpu::package
