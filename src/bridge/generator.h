// torch.Generator on the device: a seed and an offset, both in the key-free part of a program.
//
// The state is 16 bytes, uint64 seed and int64 offset, as CUDA's
// (torch/distributed/tensor/_random.py reads it). Every random op takes draws from the offset,
// which moves by a multiple of 4: one Philox block gives four 32-bit numbers.
#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <optional>

#include "trace/window.h"

namespace tpu::bridge {

class TpuGenerator final : public c10::GeneratorImpl {
 public:
  explicit TpuGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { state_->offset = offset; }
  uint64_t get_offset() const override { return state_->offset; }
  uint64_t current_seed() const override { return state_->seed; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Generators that share one state, for AOTAutograd: it lets the default one draw from the state
  // of another for the time of an op.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  using State = std::shared_ptr<trace::RandomState>;
  const State& state() const { return state_; }

 private:
  TpuGenerator* clone_impl() const override;
  State state_;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);
// From the given generator (must be of this device), else the default one. Under the generator's
// mutex.
trace::RandomState take_random(const std::optional<at::Generator>& g, c10::DeviceIndex device,
                               int64_t draws);
// The state before `draws` 32-bit draws; moves the offset past them. Under the mutex of the default
// generator.
trace::RandomState take_random(trace::RandomState& s, c10::DeviceIndex device, int64_t draws);

}  // namespace tpu::bridge
