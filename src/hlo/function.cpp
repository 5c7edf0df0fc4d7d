#include "hlo/function.h"

#include "base/error.h"

namespace tpu::hlo {

Value Function::make_value(Type t) {
  product(t.dims);  // refuses a size that overflows before any pass meets it
  const Type* stored = &type_store_.emplace_back(std::move(t));
  types_.push_back(stored);
  return {static_cast<int32_t>(types_.size()) - 1, stored};
}

int32_t Function::add_location(std::string text) {
  if (locations_.empty() || locations_.back() != text) locations_.push_back(std::move(text));
  return static_cast<int32_t>(locations_.size()) - 1;
}

}  // namespace tpu::hlo
