#define Py_BUILD_CORE 1
#include "python/location.h"

#include <Python.h>
#include <internal/pycore_frame.h>

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/strings.h"

namespace tpu::python {
namespace {

#if PY_VERSION_HEX >= 0x030D0000
using Frame = _PyInterpreterFrame;
Frame* top_frame(PyThreadState* t) { return t->current_frame; }
PyCodeObject* code_of(Frame* f) {
  PyObject* e = f->f_executable;
  return e && PyCode_Check(e) ? reinterpret_cast<PyCodeObject*>(e) : nullptr;
}
const void* instruction(Frame* f) { return f->instr_ptr; }
#else
using Frame = _PyInterpreterFrame;
Frame* top_frame(PyThreadState* t) { return t->cframe ? t->cframe->current_frame : nullptr; }
PyCodeObject* code_of(Frame* f) { return f->f_code; }
const void* instruction(Frame* f) { return f->prev_instr; }
#endif

// Whether a code object belongs to torch or to us.
struct CodeTable {
  std::mutex mutex;
  std::unordered_map<const PyCodeObject*, bool> is_library;
};
CodeTable& code_table() {
  static auto* t = new CodeTable;
  return *t;
}

bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

bool in_library(std::string_view file) {
  for (std::string_view part : {"/torch/", "/torch_tpu/", "<frozen ", "<string>/"}) {
    if (file.find(part) != std::string_view::npos) {
      // A user's folder may be called torch: only installed packages and our own tree count.
      if (part == "/torch/" && file.find("-packages/torch/") == std::string_view::npos) continue;
      if (part == "/torch_tpu/" && file.find("/tests/") != std::string_view::npos) continue;
      if (part == "/torch_tpu/" && file.find("/examples/") != std::string_view::npos) continue;
      return true;
    }
  }
  return false;
}

// Looks a code object up; the first time it is kept alive and its file is read, with the GIL.
bool is_library(PyCodeObject* code) {
  thread_local std::unordered_map<const PyCodeObject*, bool> seen;
  if (const auto it = seen.find(code); it != seen.end()) return it->second;
  if (finalizing()) return true;
  CodeTable& t = code_table();
  {
    std::lock_guard lock(t.mutex);
    if (const auto it = t.is_library.find(code); it != t.is_library.end())
      return seen[code] = it->second;
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) PyErr_Clear();
  const bool library = file && in_library(file);
  Py_INCREF(code);
  PyGILState_Release(gil);
  std::lock_guard lock(t.mutex);
  t.is_library[code] = library;
  return seen[code] = library;
}

trace::Location capture() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread) return {};
  for (Frame* f = top_frame(thread); f; f = f->previous) {
    PyCodeObject* code = code_of(f);
    if (!code || is_library(code)) continue;
    const auto* base = reinterpret_cast<const char*>(_PyCode_CODE(code));
    return {code, static_cast<int32_t>(static_cast<const char*>(instruction(f)) - base), 0};
  }
  return {};
}

std::string describe(const trace::Location& l) {
  if (!l.code || finalizing()) return "";
  auto* code = static_cast<PyCodeObject*>(const_cast<void*>(l.code));
  const PyGILState_STATE gil = PyGILState_Ensure();
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* name = PyUnicode_AsUTF8(code->co_name);
  if (!file || !name) PyErr_Clear();
  std::string text =
      cat(file ? file : "?", ":", PyCode_Addr2Line(code, l.offset), " in ", name ? name : "?");
  PyGILState_Release(gil);
  return text;
}

}  // namespace

void install_location_source() {
  trace::location_source().capture = &capture;
  trace::location_source().describe = &describe;
}

std::string current_call_site() { return describe(capture()); }

}  // namespace tpu::python
