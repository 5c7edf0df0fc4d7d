// Bindings of traced programs: torch_tpu._C.Tracing and the current module's path.
#pragma once
#include <pybind11/pybind11.h>

namespace tpu::python {

void bind_tracing(pybind11::module_& m);

}  // namespace tpu::python
