#include "ops/attr.h"

namespace tpu::ops {

const char* to_string(ArgKind k) {
  switch (k) {
    case ArgKind::kTensor: return "Tensor";
    case ArgKind::kOptTensor: return "Tensor?";
    case ArgKind::kTensorList: return "Tensor[]";
    case ArgKind::kOptTensorList: return "Tensor?[]";
    case ArgKind::kScalar: return "Scalar";
    case ArgKind::kOptScalar: return "Scalar?";
    case ArgKind::kScalarList: return "Scalar[]";
    case ArgKind::kNumber: return "Scalar (constant)";
    case ArgKind::kOptNumber: return "Scalar? (constant)";
    case ArgKind::kNumberList: return "Scalar[] (constant)";
    case ArgKind::kInt: return "int";
    case ArgKind::kOptInt: return "int?";
    case ArgKind::kInts: return "int[]";
    case ArgKind::kOptInts: return "int[]?";
    case ArgKind::kFloat: return "float";
    case ArgKind::kOptFloat: return "float?";
    case ArgKind::kFloats: return "float[]";
    case ArgKind::kOptFloats: return "float[]?";
    case ArgKind::kBool: return "bool";
    case ArgKind::kOptBool: return "bool?";
    case ArgKind::kBools: return "bool[]";
    case ArgKind::kDType: return "ScalarType";
    case ArgKind::kOptDType: return "ScalarType?";
    case ArgKind::kString: return "str";
    case ArgKind::kOptString: return "str?";
  }
  return "unknown";
}

}  // namespace tpu::ops
