#include "bridge/register.h"

#include <torch/library.h>

#include <algorithm>
#include <map>
#include <set>

#include "aten/all.h"
#include "bridge/kernel.h"
#include "trace/strided.h"
#include "trace/subgraph.h"

namespace tpu::bridge {
namespace {

struct Overload {
  c10::OperatorName name;
  const c10::FunctionSchema* schema;
};

// Base name without the in-place underscore: add_ belongs to add, __iand__ and _foo stay.
std::string family_name(const std::string& name) {
  if (name.ends_with("_") && !name.ends_with("__")) return name.substr(0, name.size() - 1);
  return name;
}

std::vector<const c10::Argument*> inputs_of(const c10::FunctionSchema& s, bool with_dtype) {
  std::vector<const c10::Argument*> v;
  for (const c10::Argument& a : s.arguments()) {
    if (is_input(a) && (with_dtype || a.name() != "dtype")) v.push_back(&a);
  }
  return v;
}

bool is_functional(const c10::FunctionSchema& s) {
  return std::none_of(s.arguments().begin(), s.arguments().end(), [](const c10::Argument& a) {
    return a.alias_info() && a.alias_info()->isWrite();
  });
}

bool same_inputs(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  const auto x = inputs_of(a, true), y = inputs_of(b, true);
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i]->name() != y[i]->name() || *x[i]->type() != *y[i]->type()) return false;
  }
  return true;
}

std::vector<RegisteredOp>& table() {
  static auto* t = new std::vector<RegisteredOp>;
  return *t;
}

// Overloads whose declared form is called by a kernel of dynamic.cpp or special.cpp.
const std::set<std::string>& wrapped_overloads() {
  static const std::set<std::string> names = {"aten::_index_put_impl_",
                                              "aten::index.Tensor",
                                              "aten::index_put",
                                              "aten::index_put_",
                                              "aten::_linalg_det",
                                              "aten::_linalg_slogdet",
                                              "aten::repeat_interleave.Tensor",
                                              "aten::_padded_dense_to_jagged_forward"};
  return names;
}

std::string text(const c10::OperatorName& n) {
  return n.overload_name.empty() ? n.name : n.name + "." + n.overload_name;
}

}  // namespace

const std::vector<RegisteredOp>& registered_ops() { return table(); }

void register_ops() {
  ops::Registry& registry = ops::Registry::instance();
  aten::register_all(registry);
  trace::register_views(registry);
  trace::register_control_flow(registry);

  auto& dispatcher = c10::Dispatcher::singleton();
  std::map<std::string, std::vector<Overload>> families;
  for (const c10::OperatorName& n : dispatcher.getAllOpNames()) {
    if (!n.name.starts_with("aten::")) continue;
    if (const auto h = dispatcher.findSchema(n))
      families[family_name(n.name)].push_back({n, &h->schema()});
  }

  // Lives as long as the process: a library that is destroyed takes its kernels with it.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten",
                                            c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::set<std::string> declared;
  for (const ops::OpDef& def : registry.all()) declared.insert(def.name);
  for (const ops::OpDef& def : registry.all()) {
    RegisteredOp row{def.name, {}};
    if (def.name.starts_with("aten::")) {
      const size_t dot = def.name.find('.');
      const std::string base = def.name.substr(0, dot);
      const std::string overload = dot == std::string::npos ? "" : def.name.substr(dot + 1);
      const auto handle = dispatcher.findSchema({base, overload});
      TPU_CHECK(handle, ErrorKind::kInternal, "PyTorch has no op called ", def.name);
      const c10::FunctionSchema& mine = handle->schema();
      for (const Overload& o : families[family_name(base)]) {
        const std::string full = text(o.name);
        if (full != def.name) {
          // Another declaration's own overload, another functional form, or other inputs.
          if (declared.contains(full) || is_functional(*o.schema)) continue;
          if (!is_functional(mine) || !same_inputs(mine, *o.schema)) continue;
        }
        row.overloads.push_back(full);
        if (wrapped_overloads().contains(full)) continue;
        auto kernel = std::make_unique<Kernel>(def, *o.schema);
        library->impl(full.substr(6).c_str(),
                      torch::CppFunction::makeFromBoxedKernel(
                          c10::BoxedKernel::makeFromFunctor(std::move(kernel))));
      }
    }
    table().push_back(std::move(row));
  }
}

}  // namespace tpu::bridge
