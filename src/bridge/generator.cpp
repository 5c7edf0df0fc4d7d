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
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void TpuGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

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
  std::memcpy(&seed_, bytes, sizeof seed_);
  std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
}

c10::intrusive_ptr<c10::TensorImpl> TpuGenerator::get_state() const {
  at::Tensor t = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte,
                                       c10::kStrided, at::kCPU, std::nullopt, std::nullopt);
  auto* bytes = t.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, sizeof seed_);
  std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
  return t.getIntrusivePtr();
}

trace::RandomState TpuGenerator::take(int64_t draws) {
  const trace::RandomState s{seed_, offset_};
  offset_ += (static_cast<uint64_t>(draws) + 3) / 4 * 4;
  return s;
}

TpuGenerator* TpuGenerator::clone_impl() const {
  auto* g = new TpuGenerator(device().index());
  g->seed_ = seed_;
  g->offset_ = offset_;
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

trace::RandomState take_random(const std::optional<at::Generator>& g, c10::DeviceIndex device,
                               int64_t draws) {
  if (trace::Trace* t = runtime::current_trace(device)) {
    TPU_CHECK(!g || !g->defined() || *g == default_generator(device), ErrorKind::kUnsupported,
              "a traced program draws from the device's default generator only; pass no generator");
    return t->take_random(draws);
  }
  at::Generator used = g && g->defined() ? *g : default_generator(device);
  TPU_CHECK(used.device().type() == c10::DeviceType::PrivateUse1,
            "Expected a 'tpu' device type for generator but found '",
            c10::DeviceTypeName(used.device().type(), true), "'");
  std::lock_guard lock(used.mutex());
  return static_cast<TpuGenerator*>(used.unsafeGetGeneratorImpl())->take(draws);
}

}  // namespace tpu::bridge
