#include "pjrt/compile_options.h"

#include "base/strings.h"
#include "base/test.h"

namespace tpu::pjrt {
namespace {

TEST(compile_options_default_bytes) {
  // {3: {1: -1, 4: 1, 5: 1}}: what jaxlib's CompileOptions parses as one replica on the default device.
  EXPECT_EQ(to_hex(CompileOptions{}.encode()), std::string("1a0f08ffffffffffffffffff0120012801"));
}

}  // namespace
}  // namespace tpu::pjrt
