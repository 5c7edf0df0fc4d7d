#include "python/trace.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <mutex>

#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/graph.h"
#include "bridge/kernel.h"
#include "bridge/loaded.h"
#include "bridge/prefix.h"
#include "bridge/tracing.h"
#include "trace/trace.h"

namespace py = pybind11;

namespace tpu::python {
namespace {

using bridge::CompiledGraph;
using bridge::guarded;
using bridge::LoadedProgram;
using bridge::Tracing;
using trace::Location;

thread_local std::vector<int32_t> module_path;

// Where the forward op of each autograd node stood: a node is known by the thread that made it and
// its number there. Kept until the next program is traced.
struct Forward {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, Location> of_node;
};
Forward& forward() {
  static auto* f = new Forward;
  return *f;
}

Location capture_traced() {
  const auto& capture = trace::location_source().capture;
  Location here = capture ? capture() : Location();
  if (!module_path.empty()) here.path = module_path.back();
  Forward& f = forward();
  if (const auto node = torch::autograd::get_current_node()) {
    if (here.code && here.path) return here;
    const std::lock_guard lock(f.mutex);
    const auto it = f.of_node.find({node->thread_id(), node->sequence_nr()});
    if (it != f.of_node.end()) {
      if (!here.code) here.code = it->second.code, here.offset = it->second.offset;
      if (!here.path) here.path = it->second.path;
    }
  } else if (c10::GradMode::is_enabled()) {
    // Torch makes the node of an op just before it calls the op's kernel.
    const uint64_t next = at::sequence_number::peek();
    if (next > 0) {
      const std::lock_guard lock(f.mutex);
      f.of_node.try_emplace({at::RecordFunction::currentThreadId(), next - 1}, here);
    }
  }
  return here;
}

py::dict finish(Tracing& t, const std::vector<at::Tensor>& outputs,
                const Tracing::FinishOptions& options) {
  const Tracing::Program p = t.finish(outputs, options);
  static constexpr const char* kKinds[] = {"placeholder", "constant", "generator"};
  py::list arguments, checks;
  for (const Tracing::Argument& a : p.arguments)
    arguments.append(py::make_tuple(kKinds[static_cast<int>(a.kind)], a.index, a.updated_by));
  for (const trace::Assertion& a : p.assertions)
    checks.append(py::make_tuple(to_string(a.kind), a.text));
  py::dict d;
  d["text"] = p.text;
  d["arguments"] = arguments;
  d["constants"] = p.constants;
  d["outputs"] = p.output_count;
  d["assertions"] = checks;
  return d;
}

// Records an op of trace/control.cpp: its lists of tensors, then its numbers.
std::vector<at::Tensor> control_flow(const std::string& op,
                                     const std::vector<std::vector<at::Tensor>>& tensors,
                                     const std::vector<int64_t>& numbers) {
  std::vector<c10::IValue> arguments;
  for (const auto& list : tensors) arguments.emplace_back(c10::List<at::Tensor>(list));
  for (const int64_t n : numbers) arguments.emplace_back(n);
  return guarded([&] { return bridge::call(("tpu::" + op).c_str(), arguments); });
}

ErrorKind error_kind(std::string_view text) {
  for (int k = 0; k <= static_cast<int>(ErrorKind::kInternal); ++k) {
    if (to_string(static_cast<ErrorKind>(k)) == text) return static_cast<ErrorKind>(k);
  }
  return ErrorKind::kInvalid;
}

using Dims = std::vector<int64_t>;

std::unique_ptr<LoadedProgram> load_program(
    const std::vector<std::tuple<at::ScalarType, Dims, int>>& arguments,
    const std::vector<std::pair<at::ScalarType, Dims>>& outputs,
    const std::vector<std::pair<std::string, std::string>>& assertions, const std::string& text,
    const py::bytes& executable) {
  LoadedProgram::Signature s;
  for (const auto& [dtype, dims, updated_by] : arguments) {
    s.arguments.push_back({dtype, {dims.begin(), dims.end()}});
    s.updated_by.push_back(updated_by);
  }
  for (const auto& [dtype, dims] : outputs)
    s.outputs.push_back({dtype, {dims.begin(), dims.end()}});
  for (const auto& [kind, what] : assertions)
    s.assertions.push_back({.kind = error_kind(kind), .text = what, .node = 0, .spoils = true});
  return guarded([&] {
    return std::make_unique<LoadedProgram>(std::move(s), text, std::string_view(executable));
  });
}

}  // namespace

void bind_tracing(py::module_& m) {
  trace::location_source().capture_traced = &capture_traced;
  py::class_<Tracing>(m, "Tracing")
      .def(py::init([](int device, bool for_tpu) {
             return guarded([&] {
               {
                 const std::lock_guard lock(forward().mutex);
                 forward().of_node.clear();
               }
               return std::make_unique<Tracing>(static_cast<c10::DeviceIndex>(device), for_tpu);
             });
           }),
           py::arg("device"), py::arg("for_tpu"))
      .def(py::init([](int device) {
             return guarded(
                 [&] { return std::make_unique<Tracing>(static_cast<c10::DeviceIndex>(device)); });
           }),
           py::arg("device"))
      .def_static(
          "inside",
          [](int device) {
            return guarded([&] { return Tracing::inside(static_cast<c10::DeviceIndex>(device)); });
          },
          py::arg("device"))
      .def("enter", [](Tracing& t) { guarded([&] { t.enter(); }); })
      .def("exit", [](Tracing& t) { guarded([&] { t.exit(); }); })
      .def("placeholder",
           [](Tracing& t, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
              at::ScalarType dtype) {
             return guarded([&] { return t.placeholder(sizes, strides, dtype); });
           })
      .def(
          "finish",
          [](Tracing& t, const std::vector<at::Tensor>& outputs, bool assertions, bool locations,
             const std::map<int, py::bytes>& embedded) {
            Tracing::FinishOptions options{assertions, locations, {}};
            for (const auto& [index, bytes] : embedded)
              options.embedded.emplace(index, std::string_view(bytes));
            return guarded([&] { return finish(t, outputs, options); });
          },
          py::arg("outputs"), py::arg("assertions"), py::arg("locations") = true,
          py::arg("embedded") = std::map<int, py::bytes>())
      .def("subgraph",
           [](Tracing& t, const std::vector<at::Tensor>& outputs) {
             Tracing::Inner inner = guarded([&] { return t.subgraph(outputs); });
             return py::make_tuple(inner.number, std::move(inner.captured));
           })
      .def_property_readonly("drawn", &Tracing::drawn)
      .def("graph", [](Tracing& t, const std::vector<std::optional<at::Tensor>>& outputs) {
        std::vector<at::Tensor> tensors;
        for (const auto& o : outputs) tensors.push_back(o.value_or(at::Tensor()));
        return guarded([&] { return t.graph(tensors); });
      });
  py::class_<CompiledGraph>(m, "CompiledGraph")
      .def_property_readonly("nodes", &CompiledGraph::nodes)
      .def(
          "__call__",
          [](CompiledGraph& g, const py::list& arguments,
             const std::vector<at::Tensor>& held) -> py::object {
            std::vector<at::Tensor> tensors;
            for (const py::handle x : arguments) {
              if (THPVariable_Check(x.ptr())) tensors.push_back(THPVariable_Unpack(x.ptr()));
            }
            tensors.insert(tensors.end(), held.begin(), held.end());
            if (!g.fits(tensors)) return py::none();
            // The caller's list is emptied: what nobody else holds may be overwritten.
            if (PyList_SetSlice(arguments.ptr(), 0, PyList_GET_SIZE(arguments.ptr()), nullptr) != 0)
              throw py::error_already_set();
            return py::cast(guarded([&] { return g.call(std::move(tensors)); }));
          });
  m.def("is_tracing", [](int device) { return runtime::current_trace(device) != nullptr; });
  m.def("padded", [](const at::Tensor& t, int64_t numel) {
    return guarded([&] { return bridge::padded(t, numel); });
  });
  m.def("prefix", [](const at::Tensor& flat, const std::vector<int64_t>& sizes,
                     const std::vector<int64_t>& strides) {
    return guarded([&] { return bridge::prefix(flat, sizes, strides); });
  });
  m.def("control_flow", &control_flow, py::arg("op"), py::arg("tensors"), py::arg("numbers"));
  py::class_<LoadedProgram>(m, "LoadedProgram")
      .def(py::init(&load_program), py::arg("arguments"), py::arg("outputs"), py::arg("assertions"),
           py::arg("text"), py::arg("executable"))
      .def_property_readonly("why_compiled", &LoadedProgram::why_compiled)
      .def("__call__", [](LoadedProgram& p, std::vector<at::Tensor> arguments) {
        return guarded([&] { return p.call(std::move(arguments)); });
      });
  m.def("compile_for_package", [](const std::string& text) {
    return py::bytes(guarded([&] { return bridge::compile_for_package(text); }));
  });
  m.def("plugin_path", [] { return guarded([] { return runtime::find_plugin().path; }); });
  m.def("push_path",
        [](const std::string& path) { module_path.push_back(trace::intern_path(path)); });
  m.def("pop_path", [] {
    TORCH_CHECK(!module_path.empty(), "no path was pushed on this thread");
    module_path.pop_back();
  });
}

}  // namespace tpu::python
