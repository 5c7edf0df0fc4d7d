// Launching programs that no window recorded: those of packages.
#include "runtime/runtime.h"

namespace tpu::runtime {

std::vector<trace::ValuePtr> Runtime::call(Device& d, Program& p,
                                           std::span<const trace::ValuePtr> arguments,
                                           const std::vector<bool>& donated) {
  TPU_CHECK(!current_trace(d.index), "a loaded program cannot be part of one that is traced");
  flush(d, FlushReason::kBoundary);
  int64_t need = p.temporary_bytes;
  for (const trace::Type* t : p.output_types) need += t->size_bytes();
  std::vector<PJRT_Buffer*> args;
  std::vector<int64_t> kept;
  SharedChecks before;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const trace::ValuePtr& v = arguments[i];
    make_ready(v, FlushReason::kBoundary);
    args.push_back(buffer_of(*v).buffer.handle());
    if (const SharedChecks& c = buffer_of(*v).checks) before = before ? merged(before, c) : c;
    if (donated[i]) {
      need -= v->type->size_bytes();
    } else {
      kept.push_back(static_cast<int64_t>(i));
    }
  }
  check_types(p, arguments);
  require(d, need, "the program needs ");

  const size_t flags = p.assertions ? 1 : 0;
  std::vector<PJRT_Buffer*> outputs(p.output_types.size() + flags, nullptr);
  pjrt::Launch launch;
  launch.args = args;
  launch.outputs = outputs;
  launch.non_donatable = kept;
  // One for a TPU's topology belongs to a device already.
  launch.device = p.executable.devices().empty() ? d.pjrt.handle() : nullptr;
  launch.want_completion = true;
  pjrt::Event done = p.executable.execute(launch);
  ++counters().executes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (donated[i]) arguments[i]->payload.reset();
  }
  SharedChecks checks = before;
  if (p.assertions) {
    const auto shared = std::make_shared<Flags>(pjrt::Buffer(client_->api(), outputs.back()),
                                                p.assertions->size(), on_cpu_);
    auto own = std::make_shared<Checks>();
    for (size_t a = 0; a < p.assertions->size(); ++a)
      own->push_back(
          std::make_shared<Check>(shared, a, (*p.assertions)[a], trace::Location(), before));
    d.checks.add(*own);
    checks = before ? merged(before, own) : own;
  }
  std::vector<trace::ValuePtr> results;
  for (size_t i = 0; i < p.output_types.size(); ++i) {
    trace::ValuePtr v = trace::make_value(p.output_types[i], d.index);
    auto made = std::make_unique<DeviceBuffer>(pjrt::Buffer(client_->api(), outputs[i]),
                                               p.output_types[i]->size_bytes(), d.memory);
    made->checks = checks;
    v->payload = std::move(made);
    v->state = trace::Value::State::kReady;
    results.push_back(std::move(v));
  }
  d.launches.push(std::move(done));
  return results;
}

}  // namespace tpu::runtime
