// torch_tpu._C: the bindings that torch_tpu/_C.pyi describes.
#include <ATen/Functions.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <pthread.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/settings.h"
#include "bridge/errors.h"
#include "bridge/fallback.h"
#include "bridge/generator.h"
#include "bridge/hooks.h"
#include "bridge/inherited.h"
#include "bridge/lapack.h"
#include "bridge/precision.h"
#include "bridge/register.h"
#include "bridge/stream.h"
#include "bridge/tensor.h"
#include "bridge/waits.h"
#include "hlo/print.h"
#include "python/location.h"
#include "python/trace.h"
#include "runtime/events.h"
#include "trace/lower.h"

namespace py = pybind11;

namespace tpu::python {
namespace {

using bridge::guarded;
using bridge::RecorderLock;
using runtime::Runtime;

// ---- Plugins.

std::string package_file(const char* package, const char* file) {
  try {
    const py::object spec = py::module_::import("importlib.util").attr("find_spec")(package);
    if (spec.is_none()) return "";
    for (const py::handle& folder : spec.attr("submodule_search_locations")) {
      const std::string path = py::str(folder).cast<std::string>() + "/" + file;
      if (access(path.c_str(), R_OK) == 0) return path;
    }
  } catch (const py::error_already_set&) {
    // A package that breaks while it is looked for is not there.
  }
  return "";
}

runtime::PluginPaths plugin_paths() {
  const py::gil_scoped_acquire gil;
  return {package_file("libtpu", "libtpu.so"),
          package_file("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so")};
}

const char* to_string(runtime::PluginKind k) {
  switch (k) {
    case runtime::PluginKind::kTpu: return "tpu";
    case runtime::PluginKind::kCpu: return "cpu";
    case runtime::PluginKind::kCustom: return "custom";
  }
  return "?";
}

py::dict plugin_info() {
  Runtime& r = Runtime::get();
  py::dict d;
  const auto& api = r.client().api();
  d["kind"] = to_string(r.plugin().kind);
  d["path"] = api.path();
  d["api_version"] = api.version();
  d["platform_name"] = r.client().platform_name();
  d["platform_version"] = r.client().platform_version();
  d["sha256"] =
      py::module_::import("hashlib")
          .attr("file_digest")(py::module_::import("io").attr("open")(api.path(), "rb"), "sha256")
          .attr("hexdigest")();
  return d;
}

runtime::Device& device(int index) {
  Runtime& r = Runtime::get();
  TPU_CHECK(index >= 0 && index < r.devices(), "there is no device tpu:", index,
            "; this process has ", r.devices(), " tpu device(s)");
  return r.device(index);
}

py::dict device_properties(int index) {
  runtime::Device& d = device(index);
  py::dict p;
  const std::string kind = d.pjrt.kind();
  const bool cpu = Runtime::get().on_cpu_plugin();
  p["name"] =
      cpu ? "TPU emulated on CPU (PJRT plugin " + Runtime::get().client().platform_name() + ")"
          : kind;
  p["kind"] = kind;
  p["platform"] = Runtime::get().client().platform_name();
  p["total_memory"] = d.total_memory_bytes;
  p["core_count"] = 1;
  return p;
}

// ---- Memory and counters.

py::dict memory_stats(int index) {
  const runtime::MemoryCounts& m = device(index).memory;
  py::dict d;
  auto put = [&](const char* name, int64_t current, int64_t peak, int64_t allocated,
                 int64_t freed) {
    const std::string base = name;
    for (const char* pool : {".all", ".large_pool"}) {
      d[py::str(base + pool + ".current")] = current;
      d[py::str(base + pool + ".peak")] = peak;
      d[py::str(base + pool + ".allocated")] = allocated;
      d[py::str(base + pool + ".freed")] = freed;
    }
  };
  for (const char* name :
       {"allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes"}) {
    put(name, m.current_bytes, m.peak_bytes, m.allocated_bytes, m.freed_bytes);
  }
  for (const char* name : {"allocation", "active", "segment"}) {
    put(name, m.current_buffers, m.peak_buffers, m.allocated_buffers, m.freed_buffers);
  }
  d["num_alloc_retries"] = 0;
  d["num_ooms"] = m.ooms.load();
  return d;
}

py::dict counters() {
  auto& c = runtime::counters();
  py::dict d;
  d["compiles"] = c.compiles.load();
  d["executes"] = c.executes.load();
  d["memory_hits"] = c.memory_hits.load();
  d["disk_hits"] = c.disk_hits.load();
  d["bytes_h2d"] = c.bytes_h2d.load();
  d["bytes_d2h"] = c.bytes_d2h.load();
  d["nodes"] = c.nodes.load();
  py::dict flushes;
  for (int i = 0; i < runtime::kFlushReasons; ++i) {
    if (const int64_t n = c.flushes[static_cast<size_t>(i)].load()) {
      flushes[runtime::to_string(static_cast<runtime::FlushReason>(i))] = n;
    }
  }
  d["flushes"] = flushes;
  py::dict fallbacks;
  {
    std::lock_guard lock(c.mutex);
    for (const auto& [name, n] : c.fallbacks) fallbacks[py::str(name)] = n;
  }
  d["fallbacks"] = fallbacks;
  return d;
}

py::dict cache_stats() {
  py::dict d;
  Runtime& r = Runtime::get();
  size_t programs, instances;
  {
    RecorderLock lock;
    programs = r.programs().size();
    instances = r.instances().size();
  }
  auto& disk = r.programs().disk();
  d["memory_entries"] = programs;
  d["call_types"] = instances;
  d["disk_path"] = disk.folder();
  d["disk_readonly"] = disk.readonly();
  const auto s = disk.enabled() ? disk.stats() : runtime::DiskCache::Stats();
  d["disk_entries"] = s.entries;
  d["disk_bytes"] = s.size_bytes;
  return d;
}

void cache_clear(bool memory, bool disk) {
  Runtime& r = Runtime::get();
  RecorderLock lock;
  if (memory) r.programs().clear();
  if (disk && r.programs().disk().enabled()) r.programs().disk().clear();
}

std::vector<std::string> take_program_names() {
  auto& disk = Runtime::get().programs().disk();
  return disk.enabled() ? disk.take_names() : std::vector<std::string>();
}

// The disk cache for the two below, which need no device: a process may be given programs before
// it starts one.
runtime::DiskCache& shared_disk() {
  static auto* disk = new runtime::DiskCache;
  return *disk;
}

std::optional<py::bytes> stored_program(const std::string& name) {
  const runtime::DiskCache& disk = shared_disk();
  const std::string entry = disk.enabled() ? disk.load_entry(name) : "";
  if (entry.empty()) return std::nullopt;
  return py::bytes(entry);
}

bool store_program(const std::string& name, const std::string& entry) {
  runtime::DiskCache& disk = shared_disk();
  const std::string_view bytes = runtime::DiskCache::program_in(name, entry);
  if (bytes.empty()) return false;
  if (disk.enabled() && disk.load(name).empty()) disk.store(name, bytes);
  return true;
}

py::list settings_list() {
  py::list rows;
  for (const Setting& s : settings().table()) {
    py::dict d;
    d["name"] = std::string(s.name);
    d["env"] = std::string(s.variable);
    d["type"] = std::string(to_string(s.type));
    d["default"] = std::string(s.fallback);
    d["choices"] = std::string(s.choices);
    d["value"] = settings().text(s.name);
    d["doc"] = std::string(s.doc);
    rows.append(d);
  }
  return rows;
}

py::list ops_list() {
  py::list rows;
  for (const auto& op : bridge::registered_ops()) {
    const ops::OpDef* def = ops::Registry::instance().find(op.name);
    py::dict d;
    d["name"] = op.name;
    d["family"] = op.overloads;
    // "aten/special.cpp": the names alone are not unique.
    d["file"] = def->file.substr(def->file.rfind('/', def->file.rfind('/') - 1) + 1);
    static const char* kLayouts[] = {"row-major",    "elementwise", "like self", "channels last",
                                     "column-major", "like each",   "fft"};
    d["layout"] = kLayouts[static_cast<int>(def->layout)];
    d["random"] = def->random;
    rows.append(d);
  }
  return rows;
}

// StableHLO of what the tensors' device has recorded, with all that lives as results.
std::string lower(const std::vector<at::Tensor>& tensors) {
  TPU_CHECK(!tensors.empty() && tensors[0].is_privateuseone(),
            "lower needs at least one tpu tensor");
  RecorderLock lock;
  Runtime& r = Runtime::get();
  runtime::Device& d = r.device(tensors[0].device().index());
  std::vector<trace::ValuePtr> held;
  bool waits = false;
  for (const at::Tensor& t : tensors) {
    held.push_back(bridge::read_value(t));
    waits |= held.back()->state == trace::Value::State::kPending;
  }
  TPU_CHECK(waits, "nothing that these tensors need is deferred; lower works in fused mode");
  const auto live = d.window.live_outputs();
  const std::vector<bool> donated(d.window.parameters().size());
  const trace::Lowered lowered = trace::lower(d.window, live, donated, r.instances().target());
  return hlo::print(*lowered.function);
}

// (slot number, bytes, StableHLO type) of each storage on the device that holds a buffer.
std::vector<std::tuple<int64_t, int64_t, std::string>> live_tensors(int index) {
  std::vector<std::tuple<int64_t, int64_t, std::string>> rows;
  RecorderLock lock;
  trace::for_each_slot([&](const trace::Slot& s) {
    if (s.device != index || !s.value || s.value->state != trace::Value::State::kReady) return;
    rows.emplace_back(s.number, s.value->type->size_bytes(), hlo::to_string(*s.value->type));
  });
  return rows;
}

py::dict storage_info(const at::Tensor& t) {
  const trace::Place p = bridge::slot_of(*t.storage().unsafeGetStorageImpl());
  trace::ValuePtr v;
  int64_t size_bytes = 0;
  const char* state = "empty";
  {
    // The GIL is given up in here: no Python object may be touched.
    RecorderLock lock;
    v = p.slot->value;
    size_bytes = p.slot->size_bytes;
    static const char* kStates[] = {"deferred", "ready", "failed", "placeholder"};
    if (v) state = kStates[static_cast<int>(v->state)];
  }
  py::dict d;
  d["slot"] = p.slot->number;
  d["size_bytes"] = size_bytes;
  d["state"] = state;
  d["base"] = v ? hlo::to_string(*v->type) : "";
  return d;
}

// What `t.data = data` does, without torch's check that both lie on one kind of device. False, and
// no change, for tensors that are more than sizes, strides and a storage: those cannot take over
// each other's fields.
bool set_data(const at::Tensor& t, const at::Tensor& data) {
  auto plain = [](const at::Tensor& x) {
    const at::TensorImpl& impl = *x.unsafeGetTensorImpl();
    return typeid(impl) == typeid(at::TensorImpl) && x.layout() == at::kStrided &&
           !x.key_set().has(c10::DispatchKey::Python);
  };
  if (!plain(t) || !plain(data)) return false;
  if (auto* meta = torch::autograd::impl::get_autograd_meta(t)) {
    // The gradient accumulator remembers dtype and device of what it was made for.
    std::lock_guard lock(meta->mutex_);
    const auto accumulator = meta->grad_accumulator_.lock();
    if (accumulator && (accumulator->input_metadata(0).device() != data.device() ||
                        !data.options().type_equal(t.options()))) {
      meta->grad_accumulator_.reset();
    }
  }
  t.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  return true;
}

// Torch's backward threads let go of a finished pass a moment after its caller went on, and with it
// of Python objects (torch.autograd.graph stashes the caller's contextvars): late in the exit of
// the interpreter that aborts the process. A pass without such objects makes each thread let go of
// the last one now.
void drain_backward_threads() {
  if (at::impl::ThreadLocalPythonObjects::contains("context"))
    at::impl::ThreadLocalPythonObjects::erase("context");
  const c10::AutoGradMode grad(true);
  for (int i = 0; i < Runtime::get().devices(); ++i) {
    const auto options =
        at::TensorOptions().device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i));
    const at::Tensor leaf = at::empty({0}, options).requires_grad_();
    torch::autograd::backward({leaf.view({0})}, {at::empty({0}, options)});
  }
}

py::object module_callback;

void call_module_callback(const std::string& name, const std::string& text) {
  const py::gil_scoped_acquire gil;
  if (module_callback && !module_callback.is_none()) {
    try {
      module_callback(name, text);
    } catch (py::error_already_set& e) {
      e.discard_as_unraisable("torch_tpu module callback");
    }
  }
}

py::list take_events() {
  py::list all;
  for (runtime::Event& e : runtime::take_events()) {
    py::dict d;
    d["kind"] = runtime::to_string(e.kind);
    d["where"] = e.where;
    d["what"] = e.what;
    d["seconds"] = e.seconds;
    d["bytes"] = e.bytes;
    d["ops"] = e.ops;
    d["launches"] = e.launches;
    d["signatures"] = e.signatures;
    all.append(d);
  }
  return all;
}

void set_module_callback(py::object f) {
  const bool off = f.is_none();
  module_callback = std::move(f);
  runtime::set_module_callback(off ? nullptr : &call_module_callback);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  runtime::set_plugin_path_source(&plugin_paths);
  install_location_source();
  bridge::set_call_site(&current_call_site);
  bridge::register_hooks();
  bridge::register_lapack();
  try {
    bridge::register_ops();
  } catch (const Error& e) {
    throw py::import_error("torch_tpu cannot be loaded: " + e.text);
  }

  m.def("is_available", [] { return Runtime::device_count() > 0; });
  m.def("is_initialized", [] { return Runtime::started() && !Runtime::in_bad_fork(); });
  m.def("is_in_bad_fork", [] { return Runtime::started() && Runtime::in_bad_fork(); });
  m.def("initialize", [] { guarded([] { Runtime::get(); }); });
  m.def("shutdown", [] {
    if (!Runtime::started() || Runtime::in_bad_fork()) return;
    const bridge::WithoutGil no_gil;
    drain_backward_threads();
    Runtime::get().shutdown();
  });
  m.def("device_count", [] { return Runtime::device_count(); });
  m.def("current_device", [] { return static_cast<int>(bridge::current_device_index()); });
  m.def("set_device", [](int i) { bridge::set_device_index(static_cast<c10::DeviceIndex>(i)); });
  m.def("exchange_device", [](int i) {
    const int old = bridge::current_device_index();
    if (i >= 0) bridge::set_device_index(static_cast<c10::DeviceIndex>(i));
    return old;
  });
  m.def("synchronize", [](int i) {
    guarded([&] { device(i); });
    bridge::synchronize_device(static_cast<c10::DeviceIndex>(i));
  });
  m.def("plugin_info", [] { return guarded(plugin_info); });
  m.def("device_properties", [](int i) { return guarded([&] { return device_properties(i); }); });

  m.def("memory_stats", [](int i) { return guarded([&] { return memory_stats(i); }); });
  m.def("reset_peak_memory_stats", [](int i) { guarded([&] { device(i).memory.reset_peak(); }); });
  m.def("reset_accumulated_memory_stats",
        [](int i) { guarded([&] { device(i).memory.reset_accumulated(); }); });
  m.def("empty_cache", [] {});  // nothing is held back: a dead tensor's memory is free at once
  m.def("mem_get_info", [](int i) {
    return guarded([&] {
      runtime::Device& d = device(i);
      return std::pair(std::max<int64_t>(d.total_memory_bytes - d.memory.current_bytes, 0),
                       d.total_memory_bytes);
    });
  });

  m.def("memory_limit",
        [](int i) { return guarded([&] { return device(i).memory_limit_bytes.load(); }); });
  m.def("set_memory_limit",
        [](int i, int64_t bytes) { guarded([&] { device(i).memory_limit_bytes = bytes; }); });
  m.def("live_tensors", [](int i) { return guarded([&] { return live_tensors(i); }); });
  m.def("wait_notice", [] { return static_cast<int>(bridge::wait_notice()); });
  m.def("set_wait_notice",
        [](int v) { bridge::set_wait_notice(static_cast<bridge::WaitNotice>(v)); });

  m.def("default_generator",
        [](int i) { return bridge::default_generator(static_cast<c10::DeviceIndex>(i)); });

  m.def("default_mode",
        [] { return guarded([] { return static_cast<int>(runtime::default_mode()); }); });
  m.def("set_default_mode",
        [](int v) { runtime::set_default_mode(static_cast<runtime::Mode>(v)); });
  m.def("current_mode",
        [] { return guarded([] { return static_cast<int>(runtime::current_mode()); }); });
  m.def("push_mode", [](int v) { bridge::push_mode(static_cast<runtime::Mode>(v)); });
  m.def("pop_mode", [] { guarded([] { bridge::pop_mode(); }); });
  const auto flush = [](runtime::FlushReason why) {
    return [why](int i) {
      guarded([&] {
        device(i);
        bridge::flush_device(static_cast<c10::DeviceIndex>(i), why);
      });
    };
  };
  m.def("flush", flush(runtime::FlushReason::kUser));
  m.def("begin_graph", flush(runtime::FlushReason::kBoundary));
  m.def("end_graph", flush(runtime::FlushReason::kGraph));
  m.def("end_step", [] {
    guarded([] {
      if (runtime::Runtime::started() && runtime::current_mode() == runtime::Mode::kFused)
        bridge::end_step();
    });
  });
  m.def("precision", [] { return static_cast<int>(bridge::current_precision()); });
  m.def("push_precision", [](int v) { bridge::push_precision(static_cast<hlo::Precision>(v)); });
  m.def("pop_precision", [] { guarded([] { bridge::pop_precision(); }); });

  m.def("fallback_mode", [] { return std::string(bridge::to_string(bridge::fallback_mode())); });
  m.def("set_fallback_mode", [](const std::string& s) {
    guarded([&] { bridge::set_fallback_mode(bridge::parse_fallback_mode(s)); });
  });
  m.def("counters", &counters);
  m.def("reset_counters", [] { runtime::counters().reset(); });
  m.def("keep_events", &runtime::keep_events);
  m.def("take_events", &take_events);
  m.def("cache_stats", [] { return guarded(cache_stats); });
  m.def("take_program_names", [] { return guarded(take_program_names); });
  m.def("stored_program",
        [](const std::string& name) { return guarded([&] { return stored_program(name); }); });
  m.def("store_program", [](const std::string& name, const py::bytes& entry) {
    return guarded([&] { return store_program(name, entry); });
  });
  m.def("cache_clear", [](bool memory, bool disk) { guarded([&] { cache_clear(memory, disk); }); });
  m.def("set_setting", [](const std::string& name, const std::string& text) {
    guarded([&] { settings().set(name, text); });
  });
  m.def("settings", [] { return guarded(settings_list); });
  m.def("ops", &ops_list);
  m.def("lower",
        [](const std::vector<at::Tensor>& t) { return guarded([&] { return lower(t); }); });
  m.def("time_launch", [](int i, int rounds) {
    return guarded([&] {
      runtime::Device& d = device(i);
      RecorderLock lock;
      return Runtime::get().time_launch(d, rounds);
    });
  });
  m.def("set_module_callback", &set_module_callback);
  m.def("set_data", [](const at::Tensor& t, const at::Tensor& data) {
    return guarded([&] { return set_data(t, data); });
  });
  bind_tracing(m);
  m.def("storage_info",
        [](const at::Tensor& t) { return guarded([&] { return storage_info(t); }); });
}

}  // namespace tpu::python
