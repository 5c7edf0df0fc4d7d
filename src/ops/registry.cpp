#include "ops/registry.h"

#include "base/error.h"

namespace tpu::ops {
namespace {

// "aten/reduce.cpp" of whatever path the compiler was given.
std::string short_path(std::string_view path) {
  const size_t file = path.rfind('/');
  if (file == std::string_view::npos || file == 0) return std::string(path);
  const size_t folder = path.rfind('/', file - 1);
  return std::string(folder == std::string_view::npos ? path : path.substr(folder + 1));
}

}  // namespace

Registry& Registry::instance() {
  static Registry r;
  return r;
}

const OpDef* Registry::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

OpDef& Registry::insert(std::string name, OpDef::Form form, const char* file) {
  TPU_CHECK(!by_name_.contains(name), ErrorKind::kInternal, name, " is declared twice, in ",
            find(name)->file, " and in ", short_path(file));
  OpDef& d = defs_.emplace_back();
  d.id = static_cast<int32_t>(defs_.size()) - 1;
  d.name = std::move(name);
  d.form = form;
  d.file = short_path(file);
  by_name_.emplace(d.name, &d);
  return d;
}

}  // namespace tpu::ops
