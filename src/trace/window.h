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
#include <span>
#include <string>
#include <vector>

#include "trace/instance.h"
#include "trace/slot.h"
#include "trace/value.h"

namespace tpu::trace {

// Where a node was recorded, resolved to text only when needed: a code object and an instruction
// offset, or null when there is no Python frame (a backward thread).
struct Location {
  const void* code = nullptr;
  int32_t offset = 0;
};
// Set by the Python bindings: the user's frame of the calling thread; the text "train.py:12" of a
// location.
struct LocationSource {
  Location (*capture)() = nullptr;
  std::string (*describe)(const Location&) = nullptr;
};
LocationSource& location_source();

// The scalar parameters of a window by element type.
struct Packs {
  std::vector<float> f32;
  std::vector<double> f64;
  std::vector<int32_t> i32;
  std::vector<int64_t> i64;
  bool operator==(const Packs&) const = default;
  void clear() { f32.clear(), f64.clear(), i32.clear(), i64.clear(); }
};

struct Node {
  const Instance* inst;
  uint32_t first_input;
  uint32_t first_output;
  std::array<uint32_t, 4> first_scalar;  // positions in the packs: f32, f64, i32, i64
  Location location;
};

struct RandomState {
  uint64_t seed = 0, offset = 0;
};

class Window {
 public:
  explicit Window(int32_t device) : device_(device) { start(); }

  // Appends one call. `inputs` and `numbers` are the tensors and scalar operands in the order of
  // the key. `outputs` receives one Value per output of the instance (null where there is no
  // tensor).
  void record(const Instance& inst, std::span<const ValuePtr> inputs,
              std::span<const ops::Number> numbers, RandomState random, Location location,
              ValuePtr* outputs);

  // Gives a slot a new value. The one it had before this window is kept until the window has run,
  // so that a failure leaves tensors that were written in place as they were.
  void overwrite(Slot& s, ValuePtr v);
  // After a failure, before `clear`: slots that hold a failed value get back what they had.
  // `consumed` tells the parameters whose memory is gone.
  void restore(const std::vector<bool>& consumed);
  // Bytes that only `overwrite` keeps alive, and their release: what the program need not coexist
  // with.
  int64_t overwritten_bytes() const;
  void release_overwritten();

  int32_t device() const { return device_; }
  bool empty() const { return nodes_.empty(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  // >= 0: parameter; < 0: output ~n of an earlier node.
  const std::vector<int32_t>& inputs() const { return inputs_; }
  const std::vector<ValuePtr>& outputs() const { return outputs_; }
  const std::vector<ValuePtr>& parameters() const { return parameters_; }
  const Packs& packs() const { return packs_; }
  int64_t output_bytes() const { return output_bytes_; }

  // Decided at a flush, in this order.
  std::vector<int32_t> live_outputs() const;
  // Parameters whose Value only this window holds (and nobody since it was overwritten). Meaningful
  // after the outputs' liveness is known.
  std::vector<bool> donatable() const;
  std::string key(std::span<const int32_t> live, const std::vector<bool>& donated) const;

  // Forgets everything recorded.
  void clear();

 private:
  void start();
  int32_t reference(const ValuePtr& v);

  int32_t device_;
  uint64_t epoch_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> inputs_;
  std::vector<ValuePtr> outputs_;
  std::vector<ValuePtr> parameters_;
  Packs packs_;
  std::vector<uint32_t> stream_;
  struct Overwritten {
    uint32_t slot;
    uint64_t serial;
    ValuePtr value;
  };
  bool only_kept(const Overwritten& o) const {
    return o.value.sole_owner() && o.value->epoch != epoch_;
  }
  std::vector<Overwritten> overwritten_;
  int64_t output_bytes_ = 0;
};

}  // namespace tpu::trace
