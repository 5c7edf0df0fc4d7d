// A StableHLO function as data: blocks of instructions in order, with nested regions.
//
// Only Builder writes it and only print.cpp and passes read it. Values are numbered over the whole
// function; types live in a deque, so a `const Type*` stays valid as long as the function does.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hlo/op.h"
#include "hlo/type.h"

namespace tpu::hlo {

class Function;

// An SSA value: a number and its type. Cheap to copy. A default-made one is invalid ("no tensor").
struct Value {
  int32_t id = -1;
  const Type* type_ptr = nullptr;

  bool valid() const { return id >= 0; }
  explicit operator bool() const { return valid(); }
  const Type& type() const { return *type_ptr; }
  DType dtype() const { return type_ptr->dtype; }
  const Dims& dims() const { return type_ptr->dims; }
  int64_t rank() const { return type_ptr->rank(); }
  int64_t dim(int64_t i) const { return type_ptr->dims[static_cast<size_t>(i)]; }
  int64_t numel() const { return type_ptr->numel(); }
};

// Attribute values. Raw is MLIR text printed as it is (enum attributes, dimension numbers).
struct Raw {
  std::string text;
  bool operator==(const Raw&) const = default;
};
struct DenseInts {  // printed array<i64: ...>
  std::vector<int64_t> values;
  bool operator==(const DenseInts&) const = default;
};
using Attribute = std::variant<bool, int64_t, double, std::string, DenseInts, Raw>;

struct Block;
struct Instruction {
  Op op;
  std::vector<int32_t> operands;
  std::vector<int32_t> results;
  std::vector<std::pair<const char*, Attribute>> attributes;
  std::vector<std::unique_ptr<Block>> regions;
  int32_t location = -1;  // index into Function::locations
};

struct Block {
  std::vector<int32_t> arguments;
  std::vector<Instruction> body;
  std::vector<int32_t> returns;
};

class Function {
 public:
  Function() = default;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  Block& entry() { return entry_; }
  const Block& entry() const { return entry_; }
  const Type& type(int32_t id) const { return *types_[static_cast<size_t>(id)]; }
  Value value(int32_t id) const { return {id, types_[static_cast<size_t>(id)]}; }
  Value make_value(Type t);
  int32_t value_count() const { return static_cast<int32_t>(types_.size()); }
  int32_t add_location(std::string text);
  const std::vector<std::string>& locations() const { return locations_; }

  // Text attributes of entry arguments, e.g. {"jax.buffer_donor = true"}; empty string for none.
  std::vector<std::string> argument_attributes;
  std::string name = "main";

 private:
  Block entry_;
  std::deque<Type> type_store_;
  std::vector<const Type*> types_;
  std::vector<std::string> locations_;
};

}  // namespace tpu::hlo
