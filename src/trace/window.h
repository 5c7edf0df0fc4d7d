// The calls recorded on one device since the last flush.
//
// A window is flat arrays: nodes, their input references, their outputs, scalar packs. Scalars of
// all nodes travel in at most four one-dimensional parameters (one per element type), not one by
// one: an argument costs the plugin microseconds. The key of a window is the stream of 32-bit words
// appended while recording, plus which outputs live and which parameters are donated; compared as
// it is, never as a hash. An output is live exactly when somebody besides the window holds its
// Value: dead temporaries vanish. Guarded by the recorder's lock.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trace/instance.h"
#include "trace/slot.h"
#include "trace/value.h"

namespace tpu::trace {

// Where a node was recorded, resolved to text only when needed: a code object and an instruction
// offset, or null when there is no Python frame (a backward thread). In a traced program also the
// module that was running, by its number (Trace::path).
struct Location {
  const void* code = nullptr;
  int32_t offset = 0;
  int32_t path = 0;
};
// Set by the Python bindings: the user's frame of the calling thread; the same in a traced program,
// with the module and, in a backward pass, those of the forward op; the text "train.py:12" of a
// location.
struct LocationSource {
  Location (*capture)() = nullptr;
  Location (*capture_traced)() = nullptr;
  std::string (*describe)(const Location&) = nullptr;
};
LocationSource& location_source();

// The scalar parameters of a window by element type.
struct Packs {
  std::vector<float> f32;
  std::vector<double> f64;
  std::vector<int32_t> i32;
  std::vector<int64_t> i64;
  // 0.0 and -0.0 differ, NaN equals itself.
  bool same_bits(const Packs& o) const;
  void clear() { f32.clear(), f64.clear(), i32.clear(), i64.clear(); }
};

struct Node {
  const Instance* inst;
  uint32_t first_input;
  uint32_t first_output;
  std::array<uint32_t, 4> first_scalar;  // positions in the packs: f32, f64, i32, i64
  Location location;
  bool ends_op = false;  // the last node of what PyTorch called
};

struct RandomState {
  uint64_t seed = 0, offset = 0;
};

// The state of a generator that traced code draws from, and how much it draws.
struct RandomSource {
  std::shared_ptr<RandomState> state;
  int64_t draws = 0;
};

using NodeRange = std::pair<size_t, size_t>;  // [begin, end)

// What a window held, taken from it to be run in pieces.
struct Recording {
  struct Overwritten {
    uint32_t slot;
    uint64_t serial;
    ValuePtr value;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> inputs;  // >= 0: parameter; < 0: output ~n of an earlier node
  std::vector<ValuePtr> outputs, parameters;
  Packs packs;
  std::vector<Overwritten> overwritten;

  // The inputs and the outputs of a node, as ranges of `inputs` and `outputs`.
  std::pair<size_t, size_t> inputs_of(size_t node) const;
  std::pair<size_t, size_t> outputs_of(size_t node) const;
  const ValuePtr& value(int32_t reference) const {
    const int32_t output = ~reference;
    return reference >= 0 ? parameters[static_cast<size_t>(reference)]
                          : outputs[static_cast<size_t>(output)];
  }
  // Lets go of what no node after `node` reads.
  void release_after(size_t node);
  // Slots that hold a failed value get back what they had, but for values in `consumed`.
  void restore(const std::vector<const Value*>& consumed);

 private:
  void order_by_last_use();
  // Parameters, then outputs (from parameters.size() on), by the last node that reads them; made by
  // the first release.
  std::vector<std::pair<size_t, size_t>> by_last_use_;  // node, value
  size_t released_ = 0;
};

struct Graph;

class Window {
 public:
  explicit Window(int32_t device) : device_(device) { start(); }

  // Appends one call. `inputs` and `numbers` are the tensors and scalar operands in the order of
  // the key. `outputs` receives one Value per output of the instance (null where there is no
  // tensor).
  void record(const Instance& inst, std::span<const ValuePtr> inputs,
              std::span<const ops::Number> numbers, RandomState random, Location location,
              ValuePtr* outputs);

  // Appends all calls of a graph; gives its results. `random`: for each source, the state before
  // its first draw.
  std::vector<ValuePtr> record(const Graph& g, std::span<const ValuePtr> arguments,
                               std::span<const RandomState> random);

  // Gives a slot a new value. The one it had before this window is kept until the window has run,
  // so that a failure leaves tensors that were written in place as they were.
  void overwrite(Slot& s, ValuePtr v);
  // The last node is the last one of an op.
  void end_op() { r_.nodes.back().ends_op = true; }
  // Takes over the old values of slots that the nodes of this window write last.
  void adopt_overwritten(Recording& r);
  // Bytes that only `overwrite` keeps alive, and their release: what the program need not coexist
  // with.
  int64_t overwritten_bytes() const;
  void release_overwritten();

  // The value as an input of this window: >= 0: parameter; < 0: output ~n of a node.
  int32_t reference(const ValuePtr& v);

  int32_t device() const { return device_; }
  uint64_t epoch() const { return epoch_; }
  bool empty() const { return r_.nodes.empty(); }
  const std::vector<Node>& nodes() const { return r_.nodes; }
  const std::vector<int32_t>& inputs() const { return r_.inputs; }
  const std::vector<ValuePtr>& outputs() const { return r_.outputs; }
  const std::vector<ValuePtr>& parameters() const { return r_.parameters; }
  const Packs& packs() const { return r_.packs; }
  int64_t output_bytes() const { return output_bytes_; }

  // Decided at a flush, in this order.
  std::vector<int32_t> live_outputs() const;
  // Parameters of at least that size whose Value only this window holds (and nobody since it was
  // overwritten). Meaningful after the outputs' liveness is known.
  std::vector<bool> donatable(int64_t from_bytes = 0) const;
  std::string key(std::span<const int32_t> live, const std::vector<bool>& donated) const;
  // Of what is computed, whatever of it is live.
  uint64_t content_hash() const;

  // Forgets everything recorded.
  void clear();
  // The same, and hands it out.
  Recording take();
  // Records a node of another window again: its outputs are the same Values.
  void append(const Recording& r, size_t node);

 private:
  void start();
  void check_input(const ValuePtr& v) const;
  // A fresh value of that type, the next output of this window; null where there is no tensor.
  ValuePtr add_output(const Type* type);

  int32_t device_;
  uint64_t epoch_ = 0;
  Recording r_;
  std::vector<uint32_t> stream_;
  bool only_kept(const Recording::Overwritten& o) const {
    return o.value.sole_owner() && o.value->epoch != epoch_;
  }
  int64_t output_bytes_ = 0;
};

}  // namespace tpu::trace
