// Executables by window key: memory (bounded, least recently used goes first), then disk, then
// compile.
//
// A disk entry's name is a hash of the program text, the compile options and the identity of the
// plugin build and processor; its content carries a checksum. Files are written under another name
// and renamed, so that readers, ranks among them, never see half a file; a damaged one is compiled
// anew and replaced. Of processes that need the same program at the same time one compiles it and
// the others wait. The memory part is guarded by the recorder's lock; the disk part may be used
// by many processes.
#pragma once
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pjrt/client.h"
#include "trace/lower.h"

namespace tpu::runtime {

// A compiled window.
struct Program {
  pjrt::Executable executable;
  // The plugin checks byte sizes only: types and shapes are compared before each launch.
  std::vector<const trace::Type*> parameter_types;
  std::vector<const trace::Type*> output_types;                     // of the live outputs
  std::shared_ptr<const std::vector<trace::Assertion>> assertions;  // null: none
  // Which parameters and assertions each output depends on (trace::dependencies); made when the
  // first check has to be handed on.
  std::vector<std::vector<bool>> dependencies;
  int64_t temporary_bytes = 0;
  // The scalar packs of the last launch, kept: a loop with constant numbers uploads nothing.
  trace::Packs packs;
  std::vector<pjrt::Buffer> pack_buffers;
  int pack_device = -1;
};

class DiskCache {
 public:
  DiskCache();
  bool enabled() const { return !folder_.empty(); }
  // Programs are loaded and none is stored: as the settings say, or the folder's owner.
  bool readonly() const { return readonly_; }
  const std::string& folder() const { return folder_; }
  // The stored bytes, or empty; the same with the header that program_in checks.
  std::string load(const std::string& name) const;
  std::string load_entry(const std::string& name) const;
  // The bytes in an entry; empty where it is damaged or another program's.
  static std::string_view program_in(const std::string& name, std::string_view entry);
  void store(const std::string& name, std::string_view bytes);
  // Held by the process that compiles a program; another one that asks waits. Ends with its holder.
  class Lock {
   public:
    explicit Lock(std::filesystem::path file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::filesystem::path file_;
    int descriptor_;
  };
  std::filesystem::path lock_file(const std::string& name) const;
  struct Stats {
    int64_t entries = 0, size_bytes = 0;
  };
  Stats stats() const;
  void clear();
  // The names of the programs that were loaded and stored since the last call. The first call gives
  // none: names are kept from then on.
  std::vector<std::string> take_names();
  void note(const std::string& name);

 private:
  std::filesystem::path file_of(const std::string& name) const;
  void trim();
  std::string folder_;
  bool readonly_ = false;
  int64_t bound_bytes_ = 0;
  int64_t stored_since_trim_ = 0;
  std::mutex names_mutex_;
  bool noting_ = false;
  std::vector<std::string> names_;
};

class ProgramCache {
 public:
  explicit ProgramCache(const pjrt::Client& client);
  // Null when it is not in memory.
  std::shared_ptr<Program> find(std::string_view key);
  // From disk, else by compiling, or null when `stored_only`. Throws what the compiler says.
  std::shared_ptr<Program> make(const trace::Lowered& lowered, bool portable,
                                bool stored_only = false);
  // The same for a text that came from elsewhere; never null.
  std::shared_ptr<Program> make(const std::string& text, bool portable);
  void insert(std::string key, std::shared_ptr<Program> p);
  size_t size() const { return entries_.size(); }
  void clear() { entries_.clear(), by_key_.clear(); }
  DiskCache& disk() { return disk_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Program> program;
  };
  // `function`: of the text, where it is known.
  std::shared_ptr<Program> make(const std::string& text, const hlo::Function* function,
                                bool portable, bool stored_only);
  const pjrt::Client& client_;
  DiskCache disk_;
  size_t bound_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

// Called with (name, StableHLO text) for each program that is compiled or loaded from disk.
using ModuleCallback = void (*)(const std::string& name, const std::string& text);
void set_module_callback(ModuleCallback f);

}  // namespace tpu::runtime
