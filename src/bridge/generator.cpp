#include "bridge/generator.h"

#include <ATen/Functions.h>
#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "runtime/runtime.h"

namespace tpu::bridge {
namespace {

constexpr size_t kStateBytes = 16;

}  // namespace

TpuGenerator::TpuGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<trace::RandomState>(c10::default_rng_seed_val)) {}

void TpuGenerator::set_current_seed(uint64_t seed) { *state_ = {seed, 0}; }

uint64_t TpuGenerator::seed() {
  const uint64_t s = c10::detail::getNonDeterministicRandom();
  set_current_seed(s);
  return s;
}

void TpuGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == static_cast<int64_t>(kStateBytes),
              "RNG state is wrong size: a tpu generator's state has ", kStateBytes, " bytes, got ",
              state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&state_->seed, bytes, sizeof state_->seed);
  std::memcpy(&state_->offset, bytes + sizeof state_->seed, sizeof state_->offset);
}

c10::intrusive_ptr<c10::TensorImpl> TpuGenerator::get_state() const {
  at::Tensor t = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte,
                                       c10::kStrided, at::kCPU, std::nullopt, std::nullopt);
  auto* bytes = t.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &state_->seed, sizeof state_->seed);
  std::memcpy(bytes + sizeof state_->seed, &state_->offset, sizeof state_->offset);
  return t.getIntrusivePtr();
}

void TpuGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* g = dynamic_cast<const TpuGenerator*>(other.get());
  TORCH_CHECK(g && g->device() == device(), "a state of ", device().str(), " is needed");
  state_ = g->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> TpuGenerator::graphsafe_get_state() const {
  auto g = c10::make_intrusive<TpuGenerator>(device().index());
  g->state_ = state_;
  return g;
}

TpuGenerator* TpuGenerator::clone_impl() const {
  auto* g = new TpuGenerator(device().index());
  *g->state_ = *state_;
  return g;
}

at::Generator make_generator(c10::DeviceIndex device) {
  const int count = runtime::Runtime::device_count();
  TORCH_CHECK(device < count, "there is no tpu:", int{device}, "; the number of devices is ",
              count);
  return at::make_generator<TpuGenerator>(device < 0 ? 0 : device);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* generators = new std::array<std::optional<at::Generator>, 128>;
  const auto i = static_cast<size_t>(
      device < 0 ? c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->getDevice().index()
                 : device);
  TORCH_CHECK(i < generators->size(), "there is no tpu:", i);
  std::lock_guard lock(mutex);
  auto& g = (*generators)[i];
  if (!g) g = make_generator(static_cast<c10::DeviceIndex>(i));
  return *g;
}

trace::RandomState take_random(trace::RandomState& s, c10::DeviceIndex device, int64_t draws) {
  at::Generator owner = default_generator(device);
  std::lock_guard lock(owner.mutex());
  const trace::RandomState before = s;
  s.offset += (static_cast<uint64_t>(draws) + 3) / 4 * 4;
  return before;
}

trace::RandomState take_random(const std::optional<at::Generator>& g, c10::DeviceIndex device,
                               int64_t draws) {
  at::Generator used = g && g->defined() ? *g : default_generator(device);
  TPU_CHECK(used.device().type() == c10::DeviceType::PrivateUse1,
            "Expected a 'tpu' device type for generator but found '",
            c10::DeviceTypeName(used.device().type(), true), "'");
  const bool is_default = used == default_generator(device);
  const auto& state = static_cast<TpuGenerator*>(used.unsafeGetGeneratorImpl())->state();
  if (trace::Trace* t = runtime::current_trace(device)) {
    TPU_CHECK(is_default || !t->is_program(), ErrorKind::kUnsupported,
              "a traced program draws from the device's default generator only; pass no generator");
    return t->take_random(state, draws);
  }
  if (is_default) return take_random(*state, device, draws);
  std::lock_guard lock(used.mutex());
  return take_random(*state, device, draws);
}

}  // namespace tpu::bridge
