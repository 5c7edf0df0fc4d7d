#include "bridge/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "bridge/allocator.h"
#include "bridge/errors.h"
#include "bridge/generator.h"
#include "bridge/stream.h"
#include "bridge/tensor.h"

namespace tpu::bridge {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return Runtime::started(); }
  void init() const override {
    guarded([] { Runtime::get(); });
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Runtime::device_count());
  }
  void setCurrentDevice(c10::DeviceIndex i) const override { set_device_index(i); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device_index(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override {
    const c10::DeviceIndex old = current_device_index();
    set_device_index(i);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override {
    return i < 0 ? current_device_index() : exchangeDevice(i);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex i) const override {
    return default_generator(i);
  }
  at::Generator getNewGenerator(c10::DeviceIndex i) const override {
    return make_generator(i < 0 ? current_device_index() : i);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const trace::Place p = trace::find_slot(data);
    TORCH_CHECK(p.slot, "the pointer ", data, " does not belong to a live tensor of a tpu device");
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(p.slot->device)};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    guarded([&] {
      RecorderLock lock;
      resize_storage(*storage.unsafeGetStorageImpl(), static_cast<int64_t>(size));
    });
  }
};

}  // namespace

void register_hooks() {
  static auto* hooks = new Hooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace tpu::bridge
