// Checks that several type rules share. Only infer*.cpp includes this.
#pragma once
#include <limits>
#include <string_view>

#include "base/error.h"
#include "hlo/infer.h"

namespace tpu::hlo::infer {

// The list has one entry for each of `count` things.
inline void check_length(Op op, std::string_view what, const Dims& list, size_t count) {
  TPU_CHECK(list.size() == count, op, " needs ", count, " ", what, ", got ", list,
            "; give one for each dimension");
}

// 0 <= axes < rank.
inline void check_axes(Op op, std::string_view what, const Dims& axes, int64_t rank) {
  for (const int64_t a : axes) {
    TPU_CHECK(a >= 0 && a < rank, op, " has ", what, " ", axes, ", out of range for rank ", rank,
              "; use 0 to ", rank - 1);
  }
}

inline bool contains(const Dims& list, int64_t v) {
  for (const int64_t x : list) {
    if (x == v) return true;
  }
  return false;
}

inline void check_unique(Op op, std::string_view what, const Dims& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      TPU_CHECK(list[i] != list[j], op, " has ", what, " ", list, ", which names ", list[i],
                " twice; name each dimension once");
    }
  }
}

inline void check_sorted(Op op, std::string_view what, const Dims& list) {
  for (size_t i = 1; i < list.size(); ++i) {
    TPU_CHECK(list[i - 1] <= list[i], op, " needs ", what, " in ascending order, got ", list,
              "; sort them");
  }
}

inline void check_sizes(Op op, const Dims& dims) {
  for (const int64_t d : dims) {
    TPU_CHECK(d >= 0, op, " has a negative size in ", dims, "; sizes must be 0 or more");
  }
}

inline void check_positive(Op op, std::string_view what, const Dims& list) {
  for (const int64_t v : list) {
    TPU_CHECK(v > 0, op, " needs positive ", what, ", got ", list, "; use 1 or more");
  }
}

inline void check_same(Op op, std::string_view what, const Type& a, const Type& b) {
  TPU_CHECK(a == b, op, " needs ", what, " of one type, got ", a, " and ", b,
            "; convert or broadcast one of them");
}

inline void check_same_dtype(Op op, std::string_view what, DType a, DType b) {
  TPU_CHECK(a == b, op, " needs ", what, " of one element type, got ", a, " and ", b,
            "; convert one of them");
}

// Sums and products of sizes are made in 128 bits, where they cannot overflow, and end here.
inline int64_t to_size(Op op, __int128 size) {
  TPU_CHECK(size <= std::numeric_limits<int64_t>::max(), op,
            " makes a dimension larger than 2^63; use smaller sizes");
  return static_cast<int64_t>(size);
}

// An optional list: entry i, or what an empty list stands for.
inline int64_t at_or(const Dims& list, size_t i, int64_t otherwise) {
  return list.empty() ? otherwise : list[i];
}

}  // namespace tpu::hlo::infer
