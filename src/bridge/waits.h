// Reads of values by the host, each of which runs what is recorded and waits: silent, a warning, or
// an error, as torch.tpu.set_sync_debug_mode says.
#pragma once

namespace tpu::bridge {

enum class WaitNotice { kNone, kWarn, kError };
WaitNotice wait_notice();
void set_wait_notice(WaitNotice n);

}  // namespace tpu::bridge
