// Compiling ahead of time. Run it with the path of libtpu and TPU_SKIP_MDS_QUERY=1 in the
// environment; no TPU is needed. Without a path all tests are skipped.
#include "pjrt/topology.h"

#include <cstdlib>
#include <string>

#include "base/test.h"

namespace tpu::pjrt {
namespace {

constexpr std::string_view kMatmul = R"("builtin.module"() ({
 "func.func"() ({
 ^bb0(%0: tensor<256x512xbf16>, %1: tensor<512x128xbf16>):
  %2 = "stablehlo.dot_general"(%0, %1) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
    : (tensor<256x512xbf16>, tensor<512x128xbf16>) -> tensor<256x128xf32>
  "func.return"(%2) : (tensor<256x128xf32>) -> ()
 }) {sym_name = "main",
     function_type = (tensor<256x512xbf16>, tensor<512x128xbf16>) -> tensor<256x128xf32>} : () -> ()
}) : () -> ()
)";

std::shared_ptr<const Api> libtpu() {
  if (test::args().empty()) SKIP("no path of libtpu was given");
  // Without it libtpu asks a metadata server for minutes.
  if (std::getenv("TPU_SKIP_MDS_QUERY") == nullptr) SKIP("TPU_SKIP_MDS_QUERY is not set");
  return Api::load(test::args()[0]);
}

TEST(topology_describes_its_devices) {
  const Topology topology = Topology::create(libtpu(), "v6e:2x2");
  EXPECT_EQ(topology.platform_name(), std::string("tpu"));
  EXPECT_TRUE(!topology.platform_version().empty());
  const auto devices = topology.devices();
  EXPECT_EQ(devices.size(), size_t{4});
  EXPECT_EQ(devices[0].kind, std::string("TPU v6 lite"));
  EXPECT_TRUE(devices[3].attributes.contains("coords"));
  EXPECT_TRUE(!topology.attributes().empty());
  EXPECT_EQ(Topology::create(libtpu(), "tpu7x:1x1x1").devices().size(), size_t{2});
}

TEST(topology_names_are_checked) {
  const auto api = libtpu();
  EXPECT_THROW_MSG(Topology::create(api, "v6e-4"), "PJRT_TopologyDescription_Create");
}

TEST(topology_compiles_without_a_device) {
  const Topology topology = Topology::create(libtpu(), "v6e:1x1");
  const Compiled program = topology.compile(kMatmul, "mlir", {});
  EXPECT_EQ(program.num_outputs(), size_t{1});
  EXPECT_TRUE(program.output_types()[0] == (OutputType{ElementType::kF32, {256, 128}}));
  const auto memory = program.memory_stats();
  EXPECT_TRUE(memory.has_value() && memory->argument_bytes >= (256 + 128) * 512 * 2);
  const auto cost = program.cost_analysis();
  EXPECT_TRUE(cost.has_value() && cost->at("flops") >= 2.0 * 256 * 512 * 128);
  EXPECT_TRUE(!program.fingerprint().empty());
  const auto optimized = program.optimized_program();
  EXPECT_TRUE(optimized.has_value() && !optimized->code.empty());
  EXPECT_TRUE(program.compile_options().has_value());
  EXPECT_TRUE(program.serialize().size() > 1000);
  EXPECT_THROW_MSG(topology.compile("rubbish", "mlir", {}), "PJRT_Compile");
  EXPECT_THROW_MSG(topology.compile("tensor<?xf32>", "mlir", {}), "unbounded dynamic dimension");
}

}  // namespace
}  // namespace tpu::pjrt
