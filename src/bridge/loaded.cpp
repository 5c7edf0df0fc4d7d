#include "bridge/loaded.h"

#include <ATen/core/TensorBody.h>

#include "bridge/dtype.h"

namespace tpu::bridge {
namespace {

std::vector<const trace::Type*> interned(const std::vector<LoadedProgram::TensorType>& types) {
  std::vector<const trace::Type*> out;
  for (const auto& t : types) out.push_back(trace::intern({to_dtype(t.dtype), t.dims}));
  return out;
}

pjrt::CompileOptions options_of(const pjrt::Client& client) {
  pjrt::CompileOptions options = client.program_options();
  options.portable = true;  // it is loaded on any device
  return options;
}

void check_outputs(const runtime::Program& p) {
  const auto made = p.executable.output_types();
  const size_t flags = p.assertions ? 1 : 0;
  TPU_CHECK(made.size() == p.output_types.size() + flags, ErrorKind::kValue, "the program has ",
            made.size(), " results and its signature ", p.output_types.size() + flags,
            "; export the package again");
  for (size_t i = 0; i < p.output_types.size(); ++i) {
    const trace::Type& t = *p.output_types[i];
    TPU_CHECK(made[i].element_type == runtime::element_type(t.dtype) && made[i].dims == t.dims,
              ErrorKind::kValue, "result ", i, " of the program is ",
              pjrt::to_string(made[i].element_type), made[i].dims, ", its signature says ",
              hlo::to_string(t), "; export the package again");
  }
}

}  // namespace

LoadedProgram::LoadedProgram(Signature signature, const std::string& text,
                             std::string_view executable)
    : signature_(std::move(signature)) {
  const WithoutGil no_gil;
  Runtime& r = Runtime::get();
  if (executable.empty()) why_compiled_ = "the package holds no executable";
  if (why_compiled_.empty()) {
    try {
      program_ = std::make_shared<runtime::Program>();
      program_->executable = r.client().deserialize(executable);
      if (const auto m = program_->executable.memory_stats())
        program_->temporary_bytes = m->temporary_bytes;
    } catch (const Error& e) {
      why_compiled_ = e.text;
    }
  }
  if (!why_compiled_.empty()) program_ = r.programs().make(text, /*portable=*/true);
  program_->parameter_types = interned(signature_.arguments);
  program_->output_types = interned(signature_.outputs);
  if (!signature_.assertions.empty())
    program_->assertions =
        std::make_shared<const std::vector<trace::Assertion>>(signature_.assertions);
  check_outputs(*program_);
}

LoadedProgram::~LoadedProgram() {
  if (Runtime::in_bad_fork()) return;
  RecorderLock lock;
  program_.reset();
}

std::vector<at::Tensor> LoadedProgram::call(std::vector<at::Tensor> arguments) {
  TPU_CHECK(arguments.size() == signature_.arguments.size(), ErrorKind::kValue,
            "the program takes ", signature_.arguments.size(), " tensors, got ", arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& t = arguments[i];
    const TensorType& want = signature_.arguments[i];
    TPU_CHECK(t.is_privateuseone() && t.device() == arguments[0].device(), ErrorKind::kValue,
              "argument ", i, " lies on ", t.device().str());
    TPU_CHECK(t.scalar_type() == want.dtype && t.sizes() == c10::IntArrayRef(want.dims),
              ErrorKind::kValue, "argument ", i, " is ", c10::toString(t.scalar_type()),
              trace::Dims(t.sizes().begin(), t.sizes().end()), ", the program takes ",
              c10::toString(want.dtype), want.dims);
  }
  RecorderLock lock;
  Runtime& r = Runtime::get();
  Device& d = r.device(arguments.empty() ? 0 : arguments[0].device().index());
  std::vector<ValuePtr> values;
  for (const at::Tensor& t : arguments) values.push_back(apply_bits(read_value(t), t));
  r.flush(d, runtime::FlushReason::kBoundary);
  std::vector<bool> donated(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (signature_.updated_by[i] < 0) continue;
    const trace::Slot& slot = *slot_of(*arguments[i].storage().unsafeGetStorageImpl()).slot;
    donated[i] = values[i].refs() == (slot.value == values[i] ? 2 : 1);
  }
  std::vector<ValuePtr> made = r.call(d, *program_, values, donated);
  values.clear();
  std::vector<bool> is_update(made.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (signature_.updated_by[i] < 0) continue;
    const auto output = static_cast<size_t>(signature_.updated_by[i]);
    is_update[output] = true;
    write_value(arguments[i], std::move(made[output]));
  }
  std::vector<at::Tensor> results;
  for (size_t o = 0; o < made.size(); ++o) {
    if (!is_update[o]) results.push_back(make_tensor(std::move(made[o])));
  }
  return results;
}

std::string compile_for_package(const std::string& text) {
  const WithoutGil no_gil;
  const pjrt::Client& client = Runtime::get().client();
  // Never from the disk cache: what was deserialized cannot be serialized again.
  const pjrt::Executable made = client.compile(text, "mlir", options_of(client));
  ++runtime::counters().compiles;
  return made.serialize();
}

}  // namespace tpu::bridge
