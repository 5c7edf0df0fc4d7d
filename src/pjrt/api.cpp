#include "pjrt/api.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace tpu::pjrt {
namespace {

constexpr int kOldestMinor = 81;  // the oldest that the conformance suite runs on

struct Registry {
  std::mutex mutex;
  std::map<const PJRT_Api*, std::shared_ptr<const Api>> loaded;
};
// Never destroyed: threads of the plugins may still report to it while the process ends.
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

struct File {
  explicit File(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info = {};
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
      size = static_cast<size_t>(info.st_size);
      data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) close(fd);
    TPU_CHECK(data != MAP_FAILED, ErrorKind::kDevice, "cannot read ", path);
  }
  ~File() { munmap(data, size); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void* data = MAP_FAILED;
  size_t size = 0;
};

// Whether `name` occurs as the end of a word: linkers let a string share its tail with a longer
// one, so anything may stand before it.
bool contains_name(const File& file, std::string_view name) {
  const char* at = static_cast<const char*>(file.data);
  const char* end = at + file.size;
  while (true) {
    const auto left = static_cast<size_t>(end - at);
    at = static_cast<const char*>(memmem(at, left, name.data(), name.size()));
    if (at == nullptr) return false;
    at += name.size();
    if (at == end || (std::isalnum(static_cast<unsigned char>(*at)) == 0 && *at != '_'))
      return true;
  }
}

struct BuildIdSearch {
  uintptr_t address;
  std::string build_id;
};

void read_notes(const char* at, size_t size, std::string& build_id) {
  const auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t whole = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (whole > size) return;
    const char* name = at + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      build_id.assign(name + padded(note.n_namesz), note.n_descsz);
      return;
    }
    at += whole;
    size -= whole;
  }
}

int visit_object(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<BuildIdSearch*>(data);
  bool holds_address = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search->address >= begin &&
        search->address < begin + segment.p_memsz) {
      holds_address = true;
    }
  }
  if (!holds_address) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || !search->build_id.empty()) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    read_notes(reinterpret_cast<const char*>(begin), segment.p_memsz, search->build_id);
  }
  return 1;
}

}  // namespace

namespace detail {

void count_client(int change) {
  static std::atomic<int> live{0};
  live += change;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    if (live > 0) in_fork_child = true;
  });
}

void throw_forked() {
  TPU_THROW(
      ErrorKind::kDevice,
      "this process was forked from one that already used the device, whose threads it lacks; "
      "start workers with the spawn or forkserver method");
}

}  // namespace detail

std::string to_string(const NamedValue& value) {
  return std::visit([](const auto& v) { return cat(v); }, value);
}

NamedValues named_values(const PJRT_NamedValue* values, size_t count) {
  NamedValues out;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& v = values[i];
    NamedValue value;
    switch (detail::enum_number(v.type)) {
      case PJRT_NamedValue_kString: value = std::string(v.string_value, v.value_size); break;
      case PJRT_NamedValue_kInt64: value = v.int64_value; break;
      case PJRT_NamedValue_kInt64List:
        value = std::vector<int64_t>(v.int64_array_value, v.int64_array_value + v.value_size);
        break;
      case PJRT_NamedValue_kFloat: value = v.float_value; break;
      case PJRT_NamedValue_kBool: value = v.bool_value; break;
      default: continue;  // a kind younger than our header
    }
    out.insert_or_assign(std::string(v.name, v.name_size), std::move(value));
  }
  return out;
}

NamedValueList::NamedValueList(const NamedValues& values) {
  for (const auto& [name, value] : values) {
    PJRT_NamedValue v{};
    v.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    v.name = name.c_str();
    v.name_size = name.size();
    v.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&value)) {
      v.type = PJRT_NamedValue_kString;
      v.string_value = text->c_str();
      v.value_size = text->size();
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      v.type = PJRT_NamedValue_kInt64;
      v.int64_value = *number;
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      v.type = PJRT_NamedValue_kBool;
      v.bool_value = *flag;
    } else if (const auto* real = std::get_if<float>(&value)) {
      v.type = PJRT_NamedValue_kFloat;
      v.float_value = *real;
    } else {
      const auto& numbers = std::get<std::vector<int64_t>>(value);
      v.type = PJRT_NamedValue_kInt64List;
      v.int64_array_value = numbers.data();
      v.value_size = numbers.size();
    }
    list_.push_back(v);
  }
}

void check_xla_flags(const std::string& path, std::string_view flags) {
  std::optional<File> file;
  for (std::string_view word : split(flags, ' ')) {
    word = trim(word);
    if (!word.starts_with("--")) continue;
    const std::string_view name = word.substr(2, word.find('=') - 2);
    if (name.empty()) continue;
    if (!file) file.emplace(path);
    TPU_CHECK(contains_name(*file, name), "XLA_FLAGS holds --", name, ", which the plugin ", path,
              " does not know and would end the process for; take it out");
  }
}

std::shared_ptr<const Api> Api::load(const std::string& path) {
  struct stat info = {};
  TPU_CHECK(stat(path.c_str(), &info) == 0, ErrorKind::kDevice, "the plugin library ", path,
            " cannot be found: ", std::strerror(errno));
  if (const char* flags = std::getenv("XLA_FLAGS")) check_xla_flags(path, flags);
  // The plugins write to stderr when a client is created, and every error that a call returns once
  // more.
  if (!log_enabled(LogLevel::kDebug)) setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);

  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TPU_CHECK(library != nullptr, ErrorKind::kDevice, "the plugin library ", path,
            " cannot be loaded: ", dlerror());
  const auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  TPU_CHECK(get_api != nullptr, ErrorKind::kDevice, path,
            " is no PJRT plugin: it has no function GetPjrtApi");
  const PJRT_Api* c_api = get_api();
  TPU_CHECK(c_api != nullptr, ErrorKind::kDevice, path, " gave no PJRT function table");
  const auto& version = c_api->pjrt_api_version;
  TPU_CHECK(version.major_version == PJRT_API_MAJOR && version.minor_version >= kOldestMinor,
            ErrorKind::kDevice, path, " has PJRT ", version.major_version, ".",
            version.minor_version, "; 0.", kOldestMinor, " or a newer 0.x is needed");

  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& api = all.loaded[c_api];
  if (api != nullptr) return api;
  const auto fresh = std::make_shared<Api>(path, c_api);
  Args<PJRT_Plugin_Initialize_Args> initialize;
  fresh->call<&PJRT_Api::PJRT_Plugin_Initialize>(initialize);
  if (fresh->has<&PJRT_Api::PJRT_Plugin_Attributes>()) {
    Args<PJRT_Plugin_Attributes_Args> args;
    fresh->call<&PJRT_Api::PJRT_Plugin_Attributes>(args);
    fresh->attributes_ = named_values(args.attributes, args.num_attributes);
  }
  api = fresh;
  return api;
}

std::string Api::version() const {
  return cat(api_->pjrt_api_version.major_version, ".", minor_version());
}

std::vector<int64_t> Api::stablehlo_version() const {
  const auto at = attributes_.find("stablehlo_current_version");
  if (at == attributes_.end()) return {};
  const auto* version = std::get_if<std::vector<int64_t>>(&at->second);
  return version != nullptr ? *version : std::vector<int64_t>{};
}

Hash128 Api::identity() const {
  std::call_once(identity_once_, [this] {
    BuildIdSearch search{reinterpret_cast<uintptr_t>(api_), {}};
    dl_iterate_phdr(visit_object, &search);
    identity_ = search.build_id.empty() ? hash_file(path_) : hash128(search.build_id);
  });
  return identity_;
}

const PJRT_Extension_Base* Api::extension(ExtensionType type) const {
  for (const auto* e = api_->extension_start; e != nullptr; e = e->next) {
    if (detail::enum_number(e->type) == static_cast<int>(type)) return e;
  }
  return nullptr;
}

std::vector<int> Api::extensions() const {
  std::vector<int> types;
  for (const auto* e = api_->extension_start; e != nullptr; e = e->next) {
    types.push_back(detail::enum_number(e->type));
  }
  return types;
}

void Api::throw_missing(std::string_view function) const {
  TPU_THROW(ErrorKind::kUnsupported, "the plugin ", path_, " (PJRT ", version(), ") has no ",
            function, "; use a newer plugin");
}

void (*Api::function_at(size_t slot) const)() {
  // The first function stands at the place that our header gives to PJRT_Error_Destroy.
  const size_t offset = offsetof(PJRT_Api, PJRT_Error_Destroy) + slot * sizeof(void*);
  if (offset + sizeof(void*) > api_->struct_size) return nullptr;
  void (*function)() = nullptr;
  std::memcpy(&function, reinterpret_cast<const char*>(api_) + offset, sizeof function);
  return function;
}

Failure Api::take_failure(PJRT_Error* error) const {
  Failure failure{StatusCode::kUnknown, {}};
  Args<PJRT_Error_GetCode_Args> code;
  code.error = error;
  if (PJRT_Error* second = api_->PJRT_Error_GetCode(&code)) {
    drop_error(second);
  } else {
    failure.code = static_cast<StatusCode>(detail::enum_number(code.code));
  }
  Args<PJRT_Error_Message_Args> message;
  message.error = error;
  api_->PJRT_Error_Message(&message);
  failure.message.assign(message.message, message.message_size);
  drop_error(error);
  return failure;
}

void Api::drop_error(PJRT_Error* error) const noexcept {
  Args<PJRT_Error_Destroy_Args> args;
  args.error = error;
  api_->PJRT_Error_Destroy(&args);
}

}  // namespace tpu::pjrt
