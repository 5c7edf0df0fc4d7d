// The disk cache alone, and, with a plugin's path on the command line, the program cache.
#include "runtime/cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "base/test.h"
#include "pjrt/serialized.h"
#include "runtime/counters.h"

namespace tpu::runtime {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test, set as the cache's.
struct Folder {
  explicit Folder(std::string_view bound = "1G") {
    std::string pattern = (fs::temp_directory_path() / "torch_tpu_cache_XXXXXX").string();
    path = mkdtemp(pattern.data());
    settings().set("cache_dir", path.string());
    settings().set("disk_cache_bytes", bound);
    settings().set("disk_cache", "1");
  }
  ~Folder() {
    for (const char* name : {"cache_dir", "disk_cache_bytes", "disk_cache", "memory_cache"})
      settings().reset(name);
    std::error_code ec;
    fs::permissions(path, fs::perms::owner_all, ec);
    fs::remove_all(path, ec);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& e : fs::directory_iterator(path)) all.push_back(e.path());
    return all;
  }
  fs::path path;
};

std::string read(const fs::path& p) {
  std::ifstream in(p, std::ios::binary);
  return {(std::istreambuf_iterator<char>(in)), {}};
}
void write(const fs::path& p, std::string_view bytes) {
  std::ofstream(p, std::ios::binary) << bytes;
}

TEST(stored_bytes_come_back) {
  const Folder folder;
  DiskCache c;
  EXPECT_TRUE(c.enabled());
  EXPECT_EQ(c.load("a"), "");
  const std::string bytes("x\0y\n", 4);
  c.store("a", bytes);
  c.store("b", "other");
  EXPECT_EQ(c.load("a"), bytes);
  EXPECT_EQ(c.load("b"), "other");
  EXPECT_EQ(DiskCache().load("a"), bytes);
  EXPECT_EQ(c.stats().entries, 2);
  EXPECT_TRUE(c.stats().size_bytes > 9);
  c.store("a", "new");
  EXPECT_EQ(c.load("a"), "new");
  c.clear();
  EXPECT_EQ(c.stats().entries, 0);
  EXPECT_EQ(c.load("a"), "");
}

TEST(damaged_files_are_not_taken) {
  const Folder folder;
  DiskCache c;
  c.store("a", std::string(1000, 'q'));
  const fs::path file = folder.files().at(0);
  const std::string good = read(file);
  std::string changed = good;
  changed.back() ^= 1;
  std::string magic = good;
  magic[0] ^= 1;
  std::string sum = good;
  sum[good.size() - 1001] ^= 1;
  for (const std::string& bad : {changed, magic, sum, good.substr(0, good.size() - 1),
                                 good.substr(0, 20), good + "x", std::string()}) {
    write(file, bad);
    EXPECT_EQ(c.load("a"), "");
  }
  write(file, good);
  EXPECT_EQ(c.load("a"), std::string(1000, 'q'));
}

TEST(a_file_under_another_name_is_not_taken) {
  const Folder folder;
  DiskCache c;
  c.store("a", "program a");
  fs::copy_file(folder.path / "a.exe", folder.path / "b.exe");
  EXPECT_EQ(c.load("b"), "");
  EXPECT_EQ(c.load("a"), "program a");
}

TEST(a_folder_in_the_place_of_a_file_is_passed_over) {
  const Folder folder;
  DiskCache c;
  fs::create_directories(folder.path / "a.exe" / "inside");
  EXPECT_EQ(c.load("a"), "");
  c.store("a", "program");
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(size_is_bounded_and_the_oldest_goes) {
  const Folder folder("64K");
  DiskCache c;
  for (int i = 0; i < 40; ++i) {
    c.store(cat("n", i), std::string(8000, static_cast<char>('a' + i % 26)));
    // Used again and again: must outlive the others.
    EXPECT_TRUE(!c.load("n0").empty());
    // Times of files are compared: keep them apart.
    for (const auto& f : folder.files()) {
      if (f.filename() != "n0.exe")
        fs::last_write_time(f, fs::last_write_time(f) - std::chrono::seconds(1));
    }
    EXPECT_TRUE(c.stats().size_bytes <= (64 << 10) + 9000);
  }
  EXPECT_TRUE(!c.load("n39").empty());
  EXPECT_TRUE(c.load("n1").empty());
}

TEST(other_files_are_left_alone) {
  const Folder folder("16K");
  write(folder.path / "notes.txt", "mine");
  DiskCache c;
  for (int i = 0; i < 10; ++i) c.store(cat("n", i), std::string(4000, 'x'));
  c.clear();
  EXPECT_EQ(read(folder.path / "notes.txt"), "mine");
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(processes_share_a_folder) {
  const Folder folder;
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      DiskCache c;
      int bad = 0;
      for (int i = 0; i < 200; ++i) {
        const std::string bytes(static_cast<size_t>(1000 + i % 7 * 5000),
                                static_cast<char>('a' + i % 3));
        c.store("shared", bytes);
        const std::string got = c.load("shared");
        // Somebody's whole file, never a mixture or half of one.
        bad += got.empty() || got.find_first_not_of(got[0]) != std::string::npos;
      }
      _exit(bad ? 1 : 0);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(a_lock_is_waited_for) {
  const Folder folder;
  const DiskCache c;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const DiskCache::Lock lock(c.lock_file("a"));
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
    usleep(200'000);
    write(folder.path / "done", "");
    _exit(0);  // and the system lets go
  }
  char x;
  EXPECT_EQ(::read(ends[0], &x, 1), 1);
  {
    const DiskCache::Lock lock(c.lock_file("a"));
    EXPECT_TRUE(fs::exists(folder.path / "done"));
  }
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(!fs::exists(c.lock_file("a")));
}

TEST(a_readonly_folder_is_read) {
  const Folder folder;
  DiskCache().store("a", "program a");
  const auto before = fs::last_write_time(folder.files()[0]);
  settings().set("disk_cache_readonly", "1");
  DiskCache c;
  EXPECT_TRUE(c.enabled() && c.readonly());
  EXPECT_EQ(c.load("a"), "program a");
  EXPECT_TRUE(fs::last_write_time(folder.files()[0]) == before);
  c.clear();
  EXPECT_EQ(folder.files().size(), 1u);
  settings().set("cache_dir", (folder.path / "nowhere").string());
  EXPECT_TRUE(!DiskCache().enabled());
  settings().set("disk_cache_readonly", "0");
}

TEST(a_folder_that_cannot_be_used_switches_it_off) {
  Folder folder;
  write(folder.path / "file", "not a folder");
  settings().set("cache_dir", (folder.path / "file").string());
  EXPECT_TRUE(!DiskCache().enabled());
  settings().set("disk_cache", "0");
  settings().set("cache_dir", folder.path.string());
  EXPECT_TRUE(!DiskCache().enabled());
}

// ---- With a plugin.

const pjrt::Client& client() {
  if (test::args().empty()) SKIP("no plugin path was given");
  static const auto c = pjrt::Client::create(pjrt::Api::load(test::args()[0]));
  return *c;
}

// x + n.
trace::Lowered add_constant(double n) {
  trace::Lowered l;
  l.function = std::make_unique<hlo::Function>();
  hlo::Builder b(*l.function);
  const hlo::Value x = b.parameter({hlo::DType::kF32, {4}});
  l.function->argument_attributes.emplace_back();
  b.finish({b.add(x, b.splat(x.type(), n))});
  return l;
}

// As the runtime does: makes a program and enters it under a key.
std::shared_ptr<Program> enter(ProgramCache&& cache, const char* key, const trace::Lowered& lowered,
                               bool portable) {
  auto p = cache.make(lowered, portable);
  cache.insert(key, p);
  return p;
}
std::shared_ptr<Program> enter(ProgramCache& cache, const char* key, const trace::Lowered& lowered,
                               bool portable) {
  auto p = cache.make(lowered, portable);
  cache.insert(key, p);
  return p;
}

std::vector<float> run(const Program& p, std::vector<float> x) {
  const int64_t dims[] = {static_cast<int64_t>(x.size())};
  const pjrt::Buffer in = client()
                              .buffer_from_host({x.data(), pjrt::ElementType::kF32, dims},
                                                pjrt::HostSemantics::kCopyDuringCall)
                              .buffer;
  PJRT_Buffer* args[] = {in.handle()};
  PJRT_Buffer* outs[] = {nullptr};
  pjrt::Launch launch;
  launch.args = args;
  launch.outputs = outs;
  p.executable.execute(launch);
  const pjrt::Buffer out(client().api(), outs[0]);
  out.to_host(x.data(), x.size() * sizeof(float)).await();
  return x;
}

struct Counted {
  int64_t compiles = counters().compiles, disk = counters().disk_hits;
  bool operator()(int64_t c, int64_t d) const {
    return counters().compiles == compiles + c && counters().disk_hits == disk + d;
  }
};

TEST(memory_then_disk_then_compile) {
  const pjrt::Client& c = client();
  const Folder folder;
  const Counted since;
  {
    ProgramCache cache(c);
    EXPECT_TRUE(cache.find("k") == nullptr);
    const auto p = enter(cache, "k", add_constant(1), false);
    EXPECT_TRUE(since(1, 0));
    EXPECT_TRUE(cache.find("k") == p);
    EXPECT_TRUE(run(*p, {1, 2, 3, 4}) == (std::vector<float>{2, 3, 4, 5}));
  }
  ProgramCache cache(c);
  EXPECT_TRUE(cache.find("k") == nullptr);
  const auto p = enter(cache, "another key, the same program", add_constant(1), false);
  EXPECT_TRUE(since(1, 1));
  EXPECT_TRUE(run(*p, {1, 2, 3, 4}) == (std::vector<float>{2, 3, 4, 5}));
  enter(cache, "k2", add_constant(2), false);
  EXPECT_TRUE(since(2, 1));
}

TEST(a_damaged_program_is_compiled_and_replaced) {
  const pjrt::Client& c = client();
  const Folder folder;
  enter(ProgramCache(c), "k", add_constant(1), false);
  const fs::path file = folder.files().at(0);
  const std::string good = read(file);
  // Not the file's own fault, but what another plugin build or processor wrote under this name.
  const size_t header = good.find('\n') + 1 + 32;
  const std::string foreign =
      pjrt::wrap_serialized(hash128("another build"), std::string_view(good).substr(header));
  const std::string foreign_file = good.substr(0, header - 32) + hash128(foreign).hex() + foreign;
  // Sound by checksum, but no program.
  const std::string junk = pjrt::wrap_serialized(c.identity(), "not an executable");
  const std::string junk_file = good.substr(0, header - 32) + hash128(junk).hex() + junk;
  for (const std::string& bad :
       {std::string("nonsense"), good.substr(0, good.size() / 2), foreign_file, junk_file}) {
    write(file, bad);
    const Counted since;
    const auto p = enter(ProgramCache(c), "k", add_constant(1), false);
    EXPECT_TRUE(since(1, 0));
    EXPECT_TRUE(run(*p, {1, 2, 3, 4}) == (std::vector<float>{2, 3, 4, 5}));
    EXPECT_TRUE(read(file) != bad);
    const Counted after;
    enter(ProgramCache(c), "k", add_constant(1), false);
    EXPECT_TRUE(after(0, 1));
  }
}

TEST(options_are_part_of_the_name) {
  const pjrt::Client& c = client();
  const Folder folder;
  enter(ProgramCache(c), "k", add_constant(1), false);
  const Counted since;
  settings().set("xla_options", "xla_backend_optimization_level=1");
  enter(ProgramCache(c), "k", add_constant(1), false);
  settings().reset("xla_options");
  EXPECT_TRUE(since(1, 0));
  enter(ProgramCache(c), "k", add_constant(1), true);
  EXPECT_TRUE(since(2, 0));
  EXPECT_EQ(folder.files().size(), 3u);
}

TEST(memory_is_bounded_and_the_least_used_goes) {
  const pjrt::Client& c = client();
  const Folder folder;
  settings().set("memory_cache", "2");
  ProgramCache cache(c);
  const auto kept = enter(cache, "a", add_constant(1), false);
  enter(cache, "b", add_constant(2), false);
  EXPECT_TRUE(cache.find("a") != nullptr);
  enter(cache, "c", add_constant(3), false);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_TRUE(cache.find("b") == nullptr);
  EXPECT_TRUE(cache.find("a") == kept);
  EXPECT_TRUE(cache.find("c") != nullptr);
  cache.clear();
  EXPECT_TRUE(cache.find("a") == nullptr);
  EXPECT_TRUE(run(*kept, {1, 2, 3, 4}) == (std::vector<float>{2, 3, 4, 5}));
}

}  // namespace
}  // namespace tpu::runtime
