// The StableHLO and CHLO instructions that the builder can make. op.cpp holds the names.
#pragma once
#include <cstdint>
#include <string_view>

namespace tpu::hlo {

enum class Op : uint16_t {
  // elementwise, one operand
  kAbs,
  kCbrt,
  kCeil,
  kCosine,
  kCountLeadingZeros,
  kExponential,
  kExponentialMinusOne,
  kFloor,
  kLog,
  kLogPlusOne,
  kLogistic,
  kNegate,
  kNot,
  kPopulationCount,
  kRoundNearestAfz,
  kRoundNearestEven,
  kRsqrt,
  kSign,
  kSine,
  kSqrt,
  kTan,
  kTanh,
  // CHLO, one operand: the plugin expands them
  kAcos,
  kAcosh,
  kAsin,
  kAsinh,
  kAtan,
  kAtanh,
  kBesselI1e,
  kConj,
  kCosh,
  kDigamma,
  kErf,
  kErfInv,
  kErfc,
  kIsInf,
  kIsNegInf,
  kIsPosInf,
  kLgamma,
  kSinh,
  // elementwise, two operands
  kAdd,
  kAnd,
  kAtan2,
  kDivide,
  kMaximum,
  kMinimum,
  kMultiply,
  kOr,
  kPower,
  kRemainder,
  kShiftLeft,
  kShiftRightArithmetic,
  kShiftRightLogical,
  kSubtract,
  kXor,
  // CHLO, two operands
  kNextAfter,
  kPolygamma,
  kZeta,
  // other elementwise
  kBitcastConvert,
  kClamp,
  kCompare,
  kComplex,
  kConvert,
  kImag,
  kIsFinite,
  kReal,
  kReducePrecision,
  kSelect,
  // shape
  kBroadcastInDim,
  kConcatenate,
  kConstant,
  kDynamicSlice,
  kDynamicUpdateSlice,
  kIota,
  kPad,
  kReshape,
  kReverse,
  kSlice,
  kTranspose,
  // contraction, windows, indexing
  kConvolution,
  kDotGeneral,
  kGather,
  kReduce,
  kReduceWindow,
  kScatter,
  kSelectAndScatter,
  kSort,
  kTopK,  // chlo.top_k
  // linear algebra, FFT, random
  kCholesky,
  kFft,
  kRngBitGenerator,
  kTriangularSolve,
  // control and escape
  kCase,
  kCustomCall,
  kIf,
  kOptimizationBarrier,
  kReturn,
  kWhile,
  // collectives
  kAllGather,
  kAllReduce,
  kAllToAll,
  kCollectivePermute,
  kPartitionId,
  kReduceScatter,
  kReplicaId,
};

inline constexpr int kOpCount = static_cast<int>(Op::kReplicaId) + 1;

std::string_view mlir_name(Op op);  // "stablehlo.add", "chlo.erf"
inline std::string_view to_string(Op op) { return mlir_name(op); }

}  // namespace tpu::hlo
