#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <thread>

#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/stream.h"
#include "bridge/tensor.h"

namespace tpu::bridge {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, 128> current_streams{};
std::atomic<c10::StreamId> next_stream{1};

struct EventState {
  std::shared_ptr<runtime::Marker> marker;
  bool timed = false;
};

}  // namespace

c10::DeviceIndex current_device_index() { return current; }

void set_device_index(c10::DeviceIndex i) {
  guarded([&] {
    const int count = Runtime::device_count();
    TPU_CHECK(i >= 0 && i < count, "there is no device tpu:", int{i}, "; this process has ", count,
              " tpu device(s)");
    current = i;
  });
}

void flush_device(c10::DeviceIndex i, runtime::FlushReason why) {
  RecorderLock lock;
  Runtime& r = Runtime::get();
  r.flush(r.device(i), why);
}

void end_step() {
  RecorderLock lock;
  Runtime& r = Runtime::get();
  for (int i = 0; i < r.devices(); ++i) r.end_step(r.device(i));
}

void synchronize_device(c10::DeviceIndex i) {
  guarded([&] {
    flush_device(i, runtime::FlushReason::kSynchronize);
    const WithoutGil no_gil;
    Runtime::get().wait(Runtime::get().device(i));
  });
}

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old(kType, current);
    if (d.index() != current && d.index() >= 0) set_device_index(d.index());
    return old;
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device d) const override {
    if (d.index() >= 0) set_device_index(d.index());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(Runtime::device_count());
    } catch (...) {
      return 0;
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability c;
    c.capability_data.capability_bits = 0;
    for (size_t i = 0; i < c10::NUMBER_OF_DEVICE_CAPABILITIES; ++i) {
      if (has_dtype(static_cast<c10::ScalarType>(i)))
        c.capability_data.capability_bits |= uint64_t{1} << i;
    }
    return c;
  }

  c10::Stream getStream(c10::Device d) const override {
    const c10::DeviceIndex i = d.has_index() ? d.index() : current;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, i),
                       current_streams[static_cast<size_t>(i)]);
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT,
                       c10::Device(kType, d.has_index() ? d.index() : current));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    return getNewStream(d, 0);
  }
  c10::Stream getNewStream(c10::Device d, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, d.has_index() ? d.index() : current),
                       next_stream++);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const auto i = static_cast<size_t>(s.device_index());
    const c10::Stream old(c10::Stream::UNSAFE, s.device(), current_streams[i]);
    current_streams[i] = s.id();
    return old;
  }
  bool queryStream(const c10::Stream& s) const override {
    return guarded([&] {
      Runtime& r = Runtime::get();
      Device& d = r.device(s.device_index());
      RecorderLock lock;
      r.flush(d, runtime::FlushReason::kEvent);
      return r.mark(d, false)->done();
    });
  }
  void synchronizeStream(const c10::Stream& s) const override {
    synchronize_device(s.device_index());
  }
  void synchronizeDevice(c10::DeviceIndex i) const override {
    synchronize_device(i < 0 ? current : i);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    guarded([&] {
      if (!*event) *event = new EventState;
      auto* e = static_cast<EventState*>(*event);
      e->timed = flag == c10::EventFlag::BACKEND_DEFAULT;
      RecorderLock lock;
      Runtime& r = Runtime::get();
      Device& d = r.device(stream.device_index());
      r.flush(d, runtime::FlushReason::kEvent);
      e->marker = r.mark(d, true);
    });
  }
  void block(void*, const c10::Stream&) const override {
    // Work runs in the order of recording: whatever the stream does next comes after the event.
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    auto* e = static_cast<EventState*>(event);
    return !e->marker || e->marker->done();
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    auto* e = static_cast<EventState*>(event);
    if (!e->marker) return;
    guarded([&] {
      const WithoutGil no_gil;
      e->marker->wait();
    });
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<EventState*>(event);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    return guarded([&] {
      auto* a = static_cast<EventState*>(start);
      auto* b = static_cast<EventState*>(end);
      TPU_CHECK(a && b && a->marker && b->marker,
                "Both events must be recorded before calculating elapsed time.");
      TPU_CHECK(a->marker->done() && b->marker->done(),
                "Both events must be completed before calculating elapsed time.");
      // The callbacks that stamp the time run on threads of the plugin, perhaps a moment after the
      // event is ready.
      for (;;) {
        const auto t0 = a->marker->time(), t1 = b->marker->time();
        if (t0 && t1) return std::chrono::duration<double, std::milli>(*t1 - *t0).count();
        std::this_thread::yield();
      }
    });
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace tpu::bridge
