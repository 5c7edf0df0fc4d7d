#include "python/trace.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <mutex>

#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/tracing.h"
#include "trace/trace.h"

namespace py = pybind11;

namespace tpu::python {
namespace {

using bridge::guarded;
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

py::dict finish(Tracing& t, const std::vector<at::Tensor>& outputs, bool assertions) {
  const Tracing::Program p = t.finish(outputs, assertions);
  static constexpr const char* kKinds[] = {"placeholder", "constant", "generator"};
  py::list arguments, checks;
  for (const Tracing::Argument& a : p.arguments)
    arguments.append(py::make_tuple(kKinds[static_cast<int>(a.kind)], a.index, a.updated_by));
  for (const trace::Assertion& a : p.assertions) checks.append(a.text);
  py::dict d;
  d["text"] = p.text;
  d["arguments"] = arguments;
  d["constants"] = p.constants;
  d["outputs"] = p.output_count;
  d["assertions"] = checks;
  return d;
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
      .def("enter", [](Tracing& t) { guarded([&] { t.enter(); }); })
      .def("exit", [](Tracing& t) { guarded([&] { t.exit(); }); })
      .def("placeholder",
           [](Tracing& t, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
              at::ScalarType dtype) {
             return guarded([&] { return t.placeholder(sizes, strides, dtype); });
           })
      .def("finish", [](Tracing& t, const std::vector<at::Tensor>& outputs, bool assertions) {
        return guarded([&] { return finish(t, outputs, assertions); });
      });
  m.def("push_path",
        [](const std::string& path) { module_path.push_back(trace::intern_path(path)); });
  m.def("pop_path", [] {
    TORCH_CHECK(!module_path.empty(), "no path was pushed on this thread");
    module_path.pop_back();
  });
}

}  // namespace tpu::python
