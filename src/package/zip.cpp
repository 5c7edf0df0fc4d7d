#include "package/zip.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace tpu::package {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kLocalSize = 30, kEntrySize = 46, kEndSize = 22, kEnd64Size = 56,
                 kLocatorSize = 20;
constexpr uint16_t kZip64Field = 1, kVersion64 = 45;
constexpr uint32_t kInExtra = 0xffffffff;  // the number stands in the zip64 field

// Eight bytes at a time: table k advances a byte by k more.
constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c >> 1 ^ (c & 1 ? 0xedb88320U : 0);
    t[0][i] = c;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
  }
  return t;
}();

template <class T>
void put(std::string& out, T v) {
  for (size_t i = 0; i < sizeof v; ++i) out += static_cast<char>(v >> (8 * i) & 255);
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  const auto& t = kCrcTables;
  uint32_t c = 0xffffffff;
  const char* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= c;
    c = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^
        t[3][high & 255] ^ t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
  }
  for (; n > 0; --n, ++p) c = c >> 8 ^ t[0][(c ^ static_cast<unsigned char>(*p)) & 255];
  return ~c;
}

// ---- Reading.

ZipReader::ZipReader(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TPU_CHECK(fd >= 0, ErrorKind::kValue, path, " cannot be read: ", std::strerror(errno));
  struct stat about{};
  const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const auto size = static_cast<size_t>(about.st_size);
  void* data =
      is_file && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  TPU_CHECK(is_file, ErrorKind::kValue, path, " is no file");
  if (data != MAP_FAILED) {
    mapping_ = {data, [size](void* p) { munmap(p, size); }};
    bytes_ = {static_cast<const char*>(data), size};
  }
  read_directory();
}

void ZipReader::check(bool condition) const {
  TPU_CHECK(condition, ErrorKind::kValue, path_,
            " is no zip archive, or is cut short (its directory is not at its end)");
}

template <class T>
T ZipReader::number(uint64_t at) const {
  check(at <= bytes_.size() && sizeof(T) <= bytes_.size() - at);
  T v = 0;
  for (size_t i = 0; i < sizeof v; ++i)
    v = static_cast<T>(v | static_cast<T>(static_cast<unsigned char>(bytes_[at + i])) << (8 * i));
  return v;
}

ZipReader::End ZipReader::find_end() const {
  check(bytes_.size() >= kEndSize);
  // A comment of up to 64 KiB may follow the end's record.
  const uint64_t last = bytes_.size() - kEndSize, first = last > 0xffff ? last - 0xffff : 0;
  uint64_t at = last;
  while (at > first && number<uint32_t>(at) != kEnd) --at;
  check(number<uint32_t>(at) == kEnd);
  End end{number<uint32_t>(at + 16), number<uint32_t>(at + 12), number<uint16_t>(at + 10)};
  if (at >= kLocatorSize && number<uint32_t>(at - kLocatorSize) == kEnd64Locator) {
    const auto end64 = number<uint64_t>(at - kLocatorSize + 8);
    check(number<uint32_t>(end64) == kEnd64);
    end = {number<uint64_t>(end64 + 48), number<uint64_t>(end64 + 40),
           number<uint64_t>(end64 + 32)};
  }
  return end;
}

void ZipReader::read_directory() {
  const End end = find_end();
  check(end.offset <= bytes_.size() && end.size <= bytes_.size() - end.offset &&
        end.count <= end.size / kEntrySize);
  uint64_t at = end.offset;
  for (uint64_t i = 0; i < end.count; ++i) {
    check(number<uint32_t>(at) == kDirectoryEntry);
    Member m;
    m.method = number<uint16_t>(at + 10);
    m.crc = number<uint32_t>(at + 16);
    const uint64_t stored = number<uint32_t>(at + 20);
    m.size = number<uint32_t>(at + 24);
    m.offset = number<uint32_t>(at + 42);
    const auto name = number<uint16_t>(at + 28), extra = number<uint16_t>(at + 30),
               comment = number<uint16_t>(at + 32);
    check(at + kEntrySize + name + extra <= bytes_.size());
    m.name = bytes_.substr(at + kEntrySize, name);
    // Of the zip64 field only those numbers are there that do not fit above, in this order.
    const uint64_t extra_begin = at + kEntrySize + name, extra_end = extra_begin + extra;
    for (uint64_t field = extra_begin; field + 4 <= extra_end;
         field += 4 + uint64_t{number<uint16_t>(field + 2)}) {
      if (number<uint16_t>(field) != kZip64Field) continue;
      uint64_t next = field + 4;
      const auto take = [&](uint64_t& v, uint64_t narrow) {
        if (narrow != kInExtra) return;
        v = number<uint64_t>(next);
        next += 8;
      };
      uint64_t packed = stored;
      take(m.size, m.size);
      take(packed, stored);
      take(m.offset, m.offset);
    }
    members_.push_back(std::move(m));
    at = extra_end + comment;
  }
}

bool ZipReader::contains(std::string_view name) const {
  return std::ranges::find(members_, name, &Member::name) != members_.end();
}

std::string_view ZipReader::read(std::string_view name) {
  const auto m = std::ranges::find(members_, name, &Member::name);
  TPU_CHECK(m != members_.end(), ErrorKind::kValue, path_, " has no member ", name);
  TPU_CHECK(m->method == 0, ErrorKind::kValue, name, " in ", path_,
            " is compressed; write it uncompressed (numpy.savez, not savez_compressed)");
  check(number<uint32_t>(m->offset) == kLocalHeader);
  const uint64_t begin =
      m->offset + kLocalSize + number<uint16_t>(m->offset + 26) + number<uint16_t>(m->offset + 28);
  check(begin <= bytes_.size() && m->size <= bytes_.size() - begin);
  const std::string_view content = bytes_.substr(begin, m->size);
  if (!m->checked) {
    TPU_CHECK(crc32(content) == m->crc, ErrorKind::kValue, name, " in ", path_,
              " is damaged: its checksum is wrong");
    m->checked = true;
  }
  return content;
}

// ---- Writing.

ZipWriter::ZipWriter(std::string path)
    : path_(std::move(path)), temporary_(cat(path_, ".", getpid(), ".tmp")) {
  out_.open(temporary_, std::ios::binary);
  TPU_CHECK(out_.good(), ErrorKind::kValue, path_, " cannot be written: ", std::strerror(errno));
}

ZipWriter::~ZipWriter() {
  if (temporary_.empty()) return;
  out_.close();
  std::remove(temporary_.c_str());
}

void ZipWriter::write(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TPU_CHECK(out_.good(), ErrorKind::kValue, path_, " cannot be written: ", std::strerror(errno));
  at_ += bytes.size();
}

void ZipWriter::add(std::string_view name, std::string_view bytes) {
  const uint32_t crc = crc32(bytes);
  const uint64_t offset = at_;
  // What both headers say: version, flags (names are UTF-8), stored, 1980-01-01.
  std::string common;
  put<uint16_t>(common, kVersion64);
  put<uint16_t>(common, 0x800);
  put<uint16_t>(common, 0);
  put<uint16_t>(common, 0);
  put<uint16_t>(common, 0x21);
  put<uint32_t>(common, crc);
  put<uint32_t>(common, kInExtra);
  put<uint32_t>(common, kInExtra);
  put<uint16_t>(common, static_cast<uint16_t>(name.size()));
  std::string sizes;
  put<uint64_t>(sizes, bytes.size());
  put<uint64_t>(sizes, bytes.size());

  std::string local;
  put<uint32_t>(local, kLocalHeader);
  local += common;
  put<uint16_t>(local, static_cast<uint16_t>(sizes.size() + 4));
  local += name;
  put<uint16_t>(local, kZip64Field);
  put<uint16_t>(local, static_cast<uint16_t>(sizes.size()));
  local += sizes;
  write(local);
  write(bytes);

  std::string& d = directory_;
  put<uint32_t>(d, kDirectoryEntry);
  put<uint16_t>(d, kVersion64);
  d += common;
  put<uint16_t>(d, static_cast<uint16_t>(sizes.size() + 8 + 4));
  put<uint16_t>(d, 0);  // comment, disk, attributes
  put<uint16_t>(d, 0);
  put<uint16_t>(d, 0);
  put<uint32_t>(d, 0);
  put<uint32_t>(d, kInExtra);
  d += name;
  put<uint16_t>(d, kZip64Field);
  put<uint16_t>(d, static_cast<uint16_t>(sizes.size() + 8));
  d += sizes;
  put<uint64_t>(d, offset);
  ++count_;
}

void ZipWriter::finish() {
  const uint64_t directory = at_, size = directory_.size();
  write(directory_);
  const uint64_t end64 = at_;
  std::string end;
  put<uint32_t>(end, kEnd64);
  put<uint64_t>(end, kEnd64Size - 12);
  put<uint16_t>(end, kVersion64);
  put<uint16_t>(end, kVersion64);
  put<uint64_t>(end, 0);  // disks
  put<uint64_t>(end, count_);
  put<uint64_t>(end, count_);
  put<uint64_t>(end, size);
  put<uint64_t>(end, directory);
  put<uint32_t>(end, kEnd64Locator);
  put<uint32_t>(end, 0);
  put<uint64_t>(end, end64);
  put<uint32_t>(end, 1);
  put<uint32_t>(end, kEnd);
  put<uint32_t>(end, 0);
  put<uint16_t>(end, 0xffff);
  put<uint16_t>(end, 0xffff);
  put<uint32_t>(end, kInExtra);
  put<uint32_t>(end, kInExtra);
  put<uint16_t>(end, 0);
  write(end);
  out_.close();
  TPU_CHECK(out_.good() && std::rename(temporary_.c_str(), path_.c_str()) == 0, ErrorKind::kValue,
            path_, " cannot be written: ", std::strerror(errno));
  temporary_.clear();
}

}  // namespace tpu::package
