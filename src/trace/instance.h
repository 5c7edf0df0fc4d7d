// An op call with everything fixed but its run-time values: the unit that a window records.
//
// An instance is made once per distinct call key by running the lowering on an empty function. That
// run gives the result types, which scalar operands the code wants in which type, how many random
// draws it takes and what it asserts. It throws what the lowering throws: a bad shape fails on the
// user's line.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/key.h"

namespace tpu::trace {

// One request of a lowering for a scalar operand, in the order of the requests.
struct ScalarUse {
  int32_t operand;
  DType dtype;  // bool, int32, int64, float32, float64, complex64, complex128
};

struct OutputSpec {
  const Type* logical = nullptr;  // what the op computes; null: no tensor
  const Type* base = nullptr;     // what is stored: logical dims in order of decreasing stride
  Dims strides;                   // of a tensor over the base
  bool row_major = true;
};

class InstanceTable;
struct Subgraph;

struct Instance {
  uint32_t id = 0;
  const InstanceTable* table = nullptr;
  const ops::OpDef* def = nullptr;
  Call call;
  std::vector<OutputSpec> outputs;
  std::vector<ScalarUse> scalars;
  std::vector<ops::NumberCheck> number_checks;  // run when a call is recorded
  int64_t random_draws = 0;                     // 32-bit draws, in whole Philox blocks of four
  int assertions = 0;
  // Multiplications of its float32 products in six passes, about; for the hint at precision.
  double six_pass_work = 0;

  // Runs the lowering: `inputs` are the tensors in order; results are in base layout, one per
  // output that exists (logical != null).
  std::vector<hlo::Value> lower(hlo::Builder& b, ops::Host& host,
                                std::span<const hlo::Value> inputs, ops::Target target) const;
  // "aten::add(float32[2, 3], float32[3])", for messages.
  std::string signature() const;

 private:
  friend class InstanceTable;
  // How result i lies in memory (CallKey::layout); empty: row-major.
  Dims order(size_t i, const std::vector<hlo::Value>& results) const;
};

// With the subgraphs that keys of control-flow ops name.
class InstanceTable final : public ops::Subgraphs {
 public:
  // The instance of this key, made if need be. Under the recorder's lock.
  const Instance& get(std::string_view key);
  size_t size() const { return instances_.size(); }
  // How many times a lowering was run for its types.
  int64_t misses() const { return static_cast<int64_t>(instances_.size()); }
  // What the programs are for; set once before the first call.
  void set_target(ops::Target t) { target_ = t; }
  ops::Target target() const { return target_; }

  // The number of a subgraph of this content; its nodes are of this table. Under the recorder's
  // lock.
  int64_t add(Subgraph g);
  const Subgraph& subgraph(int64_t number) const;
  int64_t draws(int64_t number) const override;
  int64_t assertions(int64_t number) const override;
  std::vector<Type> result_types(int64_t number) const override;
  ops::Values lower(hlo::Builder& b, int64_t number, const ops::Values& arguments,
                    hlo::Value random, ops::Target target,
                    std::vector<ops::Assertion>& assertions) const override;

 private:
  struct KeyHash {
    size_t operator()(std::string_view k) const;
  };
  const Instance& make(std::string_view key);

  std::deque<Instance> instances_;
  std::deque<std::string> keys_;
  std::unordered_map<std::string_view, const Instance*, KeyHash> by_key_;
  std::vector<const Instance*> latest_;  // of each op: the next call is often like the last
  std::vector<std::shared_ptr<const Subgraph>> subgraphs_;
  std::unordered_map<std::string, int64_t> subgraph_numbers_;
  ops::Target target_;
};

}  // namespace tpu::trace
