#include "runtime/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "hlo/print.h"
#include "runtime/counters.h"

namespace tpu::runtime {
namespace {

namespace fs = std::filesystem;

std::atomic<ModuleCallback> module_callback{nullptr};

constexpr size_t kDefaultMemoryEntries = 4096;
constexpr std::string_view kMagic = "torch_tpu executable 2\n";
constexpr std::string_view kSuffix = ".exe", kLockSuffix = ".lock";

std::string default_folder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return std::string(xdg) + "/torch_tpu";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/torch_tpu";
  return "";
}

// "// aten::mm tpu::convert": the ops of a program, as a comment before a dumped one.
// Those of a file that is there are kept: other ops may make the same program.
std::string ops_comment(const hlo::Function& f, const fs::path& file) {
  std::set<std::string, std::less<>> names;
  for (std::string_view where : f.locations()) names.emplace(where.substr(0, where.find(' ')));
  std::string word;
  std::ifstream in(file);
  if (in >> word && word == "//") {
    std::string before;
    std::getline(in, before);
    std::istringstream words(before);
    while (words >> word) names.insert(word);
  }
  std::string line = "//";
  for (const std::string& n : names) line += cat(" ", n);
  return line + "\n";
}

// What stands before a program in its file: the name is part of it, so that a file that was copied
// to another name is not taken.
std::string header(const std::string& name, std::string_view bytes) {
  return cat(kMagic, name, "\n", hash128(bytes).hex(), "\n");
}

void dump(const std::string& name, const std::string& text, const hlo::Function* function) {
  const std::string folder = settings().get_string("dump_dir");
  if (!folder.empty()) {
    std::error_code ec;
    fs::create_directories(folder, ec);
    const fs::path file = fs::path(folder) / (name + ".mlir");
    const std::string ops = function ? ops_comment(*function, file) : "";
    std::ofstream out(file);
    out << ops << text;
    TPU_CHECK(out.flush(), "TORCH_TPU_DUMP_DIR=", folder, ": the folder cannot be written");
  }
  if (auto* f = module_callback.load()) f(name, text);
}

}  // namespace

void set_module_callback(ModuleCallback f) { module_callback = f; }

DiskCache::DiskCache() {
  if (!settings().get_bool("disk_cache")) return;
  folder_ = settings().get_string("cache_dir");
  if (folder_.empty()) folder_ = default_folder();
  bound_bytes_ = settings().get_int("disk_cache_bytes");
  stored_since_trim_ = bound_bytes_;  // the first program stored looks at what others left
  readonly_ = settings().get_bool("disk_cache_readonly");
  if (folder_.empty()) return;
  std::error_code ec;
  if (!readonly_) fs::create_directories(folder_, ec);
  if (fs::is_directory(folder_, ec) && access(folder_.c_str(), R_OK | X_OK) == 0) {
    if (readonly_ || access(folder_.c_str(), W_OK) == 0) return;
    TPU_LOG(LogLevel::kWarning, "the disk cache ", folder_, " cannot be written and is only read");
    readonly_ = true;
    return;
  }
  TPU_LOG(LogLevel::kWarning, "the disk cache is off: ", folder_, " cannot be ",
          readonly_ ? "read" : "written");
  folder_.clear();
}

DiskCache::Lock::Lock(fs::path file)
    : file_(std::move(file)), descriptor_(open(file_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
  if (descriptor_ >= 0) flock(descriptor_, LOCK_EX);
}

// Who waits for a file that is gone by now compiles beside the next one: no harm.
DiskCache::Lock::~Lock() {
  if (descriptor_ < 0) return;
  std::error_code ec;
  fs::remove(file_, ec);
  close(descriptor_);
}

fs::path DiskCache::lock_file(const std::string& name) const {
  return fs::path(folder_) / cat(name, kLockSuffix);
}

fs::path DiskCache::file_of(const std::string& name) const {
  return fs::path(folder_) / cat(name, kSuffix);
}

std::string DiskCache::load_entry(const std::string& name) const {
  const fs::path file = file_of(name);
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return "";
  std::ifstream in(file, std::ios::binary);
  if (!in) return "";
  std::string entry((std::istreambuf_iterator<char>(in)), {});
  if (program_in(name, entry).empty()) return "";
  // Its age is the time of its last use.
  if (!readonly_) fs::last_write_time(file, fs::file_time_type::clock::now(), ec);
  return entry;
}

std::string DiskCache::load(const std::string& name) const {
  const std::string entry = load_entry(name);
  return std::string(program_in(name, entry));
}

std::string_view DiskCache::program_in(const std::string& name, std::string_view entry) {
  const size_t size = header(name, "").size();
  if (entry.size() <= size) return "";
  const std::string_view bytes = entry.substr(size);
  return entry.starts_with(header(name, bytes)) ? bytes : "";
}

void DiskCache::store(const std::string& name, std::string_view bytes) {
  static std::atomic<int> serial{0};
  const fs::path temporary = fs::path(folder_) / cat(name, ".", getpid(), ".", serial++, ".tmp");
  {
    std::ofstream out(temporary, std::ios::binary);
    out << header(name, bytes) << bytes;
    if (!out.flush()) {
      out.close();
      std::error_code ec;
      fs::remove(temporary, ec);
      TPU_LOG(LogLevel::kWarning, "a program could not be written to the disk cache in ", folder_);
      return;
    }
  }
  std::error_code ec;
  fs::rename(temporary, file_of(name), ec);
  if (ec) fs::remove(temporary, ec);
  stored_since_trim_ += static_cast<int64_t>(bytes.size());
  if (stored_since_trim_ > bound_bytes_ / 16) trim();
}

DiskCache::Stats DiskCache::stats() const {
  Stats s;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder_, ec)) {
    if (e.path().extension() != kSuffix) continue;
    ++s.entries;
    s.size_bytes += static_cast<int64_t>(e.file_size(ec));
  }
  return s;
}

void DiskCache::clear() {
  if (readonly_) return;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder_, ec)) {
    if (e.path().extension() == kSuffix) fs::remove(e.path(), ec);
  }
}

std::vector<std::string> DiskCache::take_names() {
  std::lock_guard lock(names_mutex_);
  noting_ = true;
  return std::exchange(names_, {});
}

void DiskCache::note(const std::string& name) {
  std::lock_guard lock(names_mutex_);
  if (noting_) names_.push_back(name);
}

// Drops the least recently used files until three quarters of the bound are left.
void DiskCache::trim() {
  stored_since_trim_ = 0;
  struct File {
    fs::file_time_type time;
    int64_t size;
    fs::path path;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder_, ec)) {
    // Left by a process that was killed while it wrote.
    const auto age = fs::file_time_type::clock::now() - e.last_write_time(ec);
    const auto suffix = e.path().extension();
    if ((suffix == ".tmp" || suffix == kLockSuffix) && age > std::chrono::hours(1))
      fs::remove(e.path(), ec);
    if (e.path().extension() != kSuffix) continue;
    files.push_back({e.last_write_time(ec), static_cast<int64_t>(e.file_size(ec)), e.path()});
    total += files.back().size;
  }
  if (total <= bound_bytes_) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.time < b.time; });
  for (const File& f : files) {
    if (total <= bound_bytes_ / 4 * 3) break;
    fs::remove(f.path, ec);
    total -= f.size;
  }
}

ProgramCache::ProgramCache(const pjrt::Client& client) : client_(client) {
  const int64_t n = settings().get_int("memory_cache");
  bound_ = n > 0 ? static_cast<size_t>(n) : kDefaultMemoryEntries;
}

std::shared_ptr<Program> ProgramCache::find(std::string_view key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->program;
}

std::shared_ptr<Program> ProgramCache::make(const trace::Lowered& lowered, bool portable,
                                            bool stored_only) {
  // Locations are left out: two scripts that do the same share a program.
  hlo::PrintOptions print_options;
  print_options.locations = false;
  auto p = make(hlo::print(*lowered.function, print_options), lowered.function.get(), portable,
                stored_only);
  if (p && !lowered.assertions.empty()) {
    p->assertions = std::make_shared<const std::vector<trace::Assertion>>(lowered.assertions);
  }
  return p;
}

std::shared_ptr<Program> ProgramCache::make(const std::string& text, bool portable) {
  return make(text, nullptr, portable, false);
}

std::shared_ptr<Program> ProgramCache::make(const std::string& text, const hlo::Function* function,
                                            bool portable, bool stored_only) {
  pjrt::CompileOptions options = client_.program_options();
  options.portable = portable;
  Hasher hasher;
  hasher.add(text).add(options.encode()).add(client_.identity());
  // Flags of the compiler that no option shows.
  for (const char* variable : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    const char* flags = std::getenv(variable);
    hasher.add(flags ? flags : "");
  }
  const std::string name = hasher.finish().hex();

  auto p = std::make_shared<Program>();
  const auto load = [&] {
    if (!disk_.enabled()) return false;
    const std::string bytes = disk_.load(name);
    if (bytes.empty()) return false;
    try {
      p->executable = client_.deserialize(bytes);
    } catch (const Error& e) {
      TPU_LOG(LogLevel::kInfo, "a program of the disk cache was not taken: ", e.text);
      return false;
    }
    ++counters().disk_hits;
    disk_.note(name);
    return true;
  };
  bool loaded = load();
  if (!loaded && stored_only) return nullptr;
  dump(name, text, function);
  const bool storing = disk_.enabled() && !disk_.readonly();
  std::optional<DiskCache::Lock> lock;
  if (!loaded && storing) {
    lock.emplace(disk_.lock_file(name));
    loaded = load();  // while this process waited for the lock
  }
  if (!loaded) {
    p->executable = client_.compile(text, "mlir", options);
    ++counters().compiles;
    if (storing) {
      try {
        disk_.store(name, p->executable.serialize());
        disk_.note(name);
      } catch (const Error& e) {
        TPU_LOG(LogLevel::kInfo, "a program was not stored on disk: ", e.text);
      }
    }
  }
  if (const auto m = p->executable.memory_stats()) p->temporary_bytes = m->temporary_bytes;
  return p;
}

void ProgramCache::insert(std::string key, std::shared_ptr<Program> p) {
  entries_.push_front({std::move(key), std::move(p)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  while (entries_.size() > bound_) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace tpu::runtime
