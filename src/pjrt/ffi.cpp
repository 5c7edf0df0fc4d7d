#include "pjrt/ffi.h"

#include <exception>
#include <string>

namespace tpu::pjrt {

// XLA's FFI and the extension that registers handlers, in our own words, as far as they are used.
// Structs may be longer than what is said here.

struct FfiAttributes {
  struct Name {
    const char* data;
    size_t size;
  };
  struct Number {
    int type;
    const void* data;
  };
  size_t struct_size;
  void* extension_start;
  int64_t size;
  const int* kinds;
  const Name* const* names;
  const void* const* values;
};

namespace {

// The oldest that all plugins take: a handler that reports a newer version than the plugin's is
// registered without complaint, and programs that call it do not compile.
constexpr int kMajor = 0, kMinor = 2;

constexpr int kMetadataExtension = 1;
constexpr int kBuffer = 1;           // kind of an operand or result
constexpr int kNumber = 3;           // kind of an attribute
constexpr int kInvalidArgument = 3;  // status codes
constexpr int kInternal = 13;
constexpr int kPred = 1;

struct ErrorArgs {
  size_t struct_size;
  void* extension_start;
  const char* message;
  int code;
};
struct Version {
  size_t struct_size;
  void* extension_start;
  int major;
  int minor;
};
struct FfiApi {
  size_t struct_size;
  void* extension_start;
  Version version;
  const void* internal;
  FfiError* (*create_error)(ErrorArgs*);
};
struct Metadata {
  size_t struct_size;
  Version version;
};
struct MetadataExtension {
  size_t struct_size;
  int type;
  void* next;
  Metadata* metadata;
};
struct Buffer {
  size_t struct_size;
  void* extension_start;
  int type;
  void* data;
  int64_t rank;
  const int64_t* dims;
};
struct Buffers {
  size_t struct_size;
  void* extension_start;
  int64_t size;
  const int* kinds;
  const Buffer* const* items;
};

struct RegisterArgs {
  size_t struct_size;
  const char* target;
  size_t target_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  uint32_t traits;
};
struct RegisterExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterArgs*);
};

// FFI counts element types as XLA does, PJRT in its own way.
ElementType element_type(int xla_type) {
  switch (xla_type) {
    case 15: return ElementType::kC64;
    case 16: return ElementType::kBF16;
    case 18: return ElementType::kC128;
    default:
      TPU_CHECK(xla_type >= 1 && xla_type <= 12, "a buffer has XLA's element type ", xla_type);
      return static_cast<ElementType>(xla_type);
  }
}

std::vector<FfiBuffer> buffers(const Buffers& from) {
  std::vector<FfiBuffer> out;
  for (int64_t i = 0; i < from.size; ++i) {
    TPU_CHECK(from.kinds[i] == kBuffer, "an argument of a custom call is no buffer");
    const Buffer& b = *from.items[i];
    out.push_back({element_type(b.type), std::span(b.dims, static_cast<size_t>(b.rank)), b.data});
  }
  return out;
}

const RegisterExtension* extension_of(const Api& api) {
  return reinterpret_cast<const RegisterExtension*>(api.extension(ExtensionType::kFfi));
}

}  // namespace

struct FfiFrame {
  size_t struct_size;
  MetadataExtension* extension_start;
  const FfiApi* api;
  void* context;
  int stage;
  Buffers operands;
  Buffers results;
  FfiAttributes attributes;
};

bool FfiCall::flag(std::string_view name) const {
  for (int64_t i = 0; i < attributes->size; ++i) {
    if (std::string_view(attributes->names[i]->data, attributes->names[i]->size) != name) continue;
    TPU_CHECK(attributes->kinds[i] == kNumber, "attribute ", name, " is no number");
    const auto* number = static_cast<const FfiAttributes::Number*>(attributes->values[i]);
    TPU_CHECK(number->type == kPred, "attribute ", name, " is no i1");
    return *static_cast<const bool*>(number->data);
  }
  TPU_THROW(ErrorKind::kInvalid, "attribute ", name, " is missing");
}

FfiError* answer_ffi_call(FfiFrame* frame, FfiHandler handler) noexcept {
  // Before the first call the plugin asks for the version.
  if (frame->extension_start != nullptr && frame->extension_start->type == kMetadataExtension) {
    frame->extension_start->metadata->version.major = kMajor;
    frame->extension_start->metadata->version.minor = kMinor;
    return nullptr;
  }
  const auto fail = [&](const char* text, int code) {
    ErrorArgs error{sizeof error, nullptr, text, code};
    return frame->api->create_error(&error);
  };
  try {
    handler({buffers(frame->operands), buffers(frame->results), &frame->attributes});
    return nullptr;
  } catch (const Error& e) {
    return fail(e.what(), e.kind == ErrorKind::kInvalid ? kInvalidArgument : kInternal);
  } catch (const std::exception& e) {
    return fail(e.what(), kInternal);
  } catch (...) {
    return fail("a custom call threw what is no exception", kInternal);
  }
}

bool takes_ffi_handlers(const Api& api) { return extension_of(api) != nullptr; }

void register_ffi_handler(const Api& api, std::string_view target, FfiEntry* entry) {
  const RegisterExtension* extension = extension_of(api);
  TPU_CHECK(extension != nullptr, ErrorKind::kUnsupported, "the plugin ", api.path(),
            " takes no custom-call handlers");
  constexpr std::string_view kPlatform = "Host";
  RegisterArgs args{};
  args.struct_size = sizeof args;
  args.target = target.data();
  args.target_size = target.size();
  args.handler = reinterpret_cast<void*>(entry);
  args.platform = kPlatform.data();
  args.platform_size = kPlatform.size();
  if (PJRT_Error* error = extension->register_handler(&args)) {
    throw_failure(api.take_failure(error), "PJRT_FFI_Register_Handler");
  }
}

}  // namespace tpu::pjrt
