// Plans are checked against index arithmetic; what the lowerings compute is checked on a device in
// runtime/programs_test.cpp.
#include "trace/strided.h"

#include <numeric>
#include <random>

#include "base/test.h"

namespace tpu::trace {
namespace {

struct View {
  Dims sizes, strides;
  int64_t offset = 0;
};

std::string text(const Dims& base, const View& v) {
  return cat("base ", base, ", sizes ", v.sizes, ", strides ", v.strides, ", offset ", v.offset);
}

Dims row_major(const Dims& dims) {
  Dims s(dims.size());
  int64_t n = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    s[i] = n;
    n *= dims[i];
  }
  return s;
}

// Calls f(position) for every position of the dims.
template <class F>
void each(const Dims& dims, F f) {
  if (hlo::product(dims) == 0) return;
  Dims at(dims.size(), 0);
  for (;;) {
    f(at);
    size_t i = dims.size();
    while (i-- > 0) {
      if (++at[i] < dims[i]) break;
      at[i] = 0;
    }
    if (i == static_cast<size_t>(-1)) return;
  }
}

// The flat base element that the plan gives for each position of the view.
Dims planned(const StridedPlan& p, const Dims& sizes) {
  const Dims unit = row_major(p.factor);
  Dims all;
  each(sizes, [&](const Dims& at) {
    int64_t flat = 0;
    for (size_t f = 0; f < p.factor.size(); ++f) flat += p.start[f] * unit[f];
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (p.axis[i] < 0) continue;
      const auto f = static_cast<size_t>(p.axis[i]);
      flat += at[i] * p.step[f] * unit[f];
    }
    all.push_back(flat);
  });
  return all;
}

Dims wanted(const View& v) {
  Dims all;
  each(v.sizes, [&](const Dims& at) {
    int64_t flat = v.offset;
    for (size_t i = 0; i < at.size(); ++i) flat += at[i] * v.strides[i];
    all.push_back(flat);
  });
  return all;
}

// Gives true when the plan needs a gather.
bool check(const Dims& base, const View& v) {
  const StridedPlan p = plan_view(base, v.sizes, v.strides, v.offset);
  if (p.gather) return true;
  const int before = test::failures();
  EXPECT_EQ(hlo::product(p.factor), hlo::product(base));
  EXPECT_EQ(p.axis.size(), v.sizes.size());
  for (size_t f = 0; f < p.factor.size(); ++f) {
    EXPECT_TRUE(p.start[f] >= 0 && p.count[f] >= 1 && p.step[f] >= 1);
    EXPECT_TRUE(p.start[f] + (p.count[f] - 1) * p.step[f] < p.factor[f]);
  }
  // No two dims of the view along one factor.
  for (size_t i = 0; i < p.axis.size(); ++i) {
    if (p.axis[i] < 0) {
      EXPECT_TRUE(v.sizes[i] == 1 || v.strides[i] == 0);
      continue;
    }
    EXPECT_EQ(p.count[static_cast<size_t>(p.axis[i])], v.sizes[i]);
    for (size_t j = 0; j < i; ++j) EXPECT_TRUE(p.axis[i] != p.axis[j]);
  }
  EXPECT_TRUE(planned(p, v.sizes) == wanted(v));
  if (test::failures() != before) std::fprintf(stderr, "  %s\n", text(base, v).c_str());
  return false;
}

struct Random {
  std::mt19937 engine;
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  }
};

Dims random_dims(Random& r, int64_t max_rank) {
  Dims d(static_cast<size_t>(r(0, max_rank)));
  for (int64_t& s : d) s = r(1, 6);
  return d;
}

// One step that torch can take without a copy and that no gather is needed for.
void derive(Random& r, View& v) {
  const auto rank = static_cast<int64_t>(v.sizes.size());
  const int64_t kind = r(0, 5);
  const auto d = static_cast<size_t>(rank ? r(0, rank - 1) : 0);
  if (kind == 0 && rank > 0) {  // slice with a step
    const int64_t start = r(0, v.sizes[d] - 1), step = r(1, 3);
    v.offset += start * v.strides[d];
    v.sizes[d] = (r(start, v.sizes[d] - 1) - start) / step + 1;
    v.strides[d] *= step;
  } else if (kind == 1 && rank > 0) {  // select
    v.offset += r(0, v.sizes[d] - 1) * v.strides[d];
    v.sizes.erase(v.sizes.begin() + static_cast<std::ptrdiff_t>(d));
    v.strides.erase(v.strides.begin() + static_cast<std::ptrdiff_t>(d));
  } else if (kind == 2 && rank > 1) {  // transpose
    const auto e = static_cast<size_t>(r(0, rank - 1));
    std::swap(v.sizes[d], v.sizes[e]);
    std::swap(v.strides[d], v.strides[e]);
  } else if (kind == 3) {  // expand
    v.sizes.insert(v.sizes.begin(), r(1, 3));
    v.strides.insert(v.strides.begin(), 0);
  } else if (kind == 4 && rank > 0) {  // split a dim
    for (int64_t k = r(1, v.sizes[d]); k > 0; --k) {
      if (v.sizes[d] % k) continue;
      v.sizes[d] /= k;
      v.sizes.insert(v.sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, k);
      v.strides.insert(v.strides.begin() + static_cast<std::ptrdiff_t>(d) + 1, v.strides[d]);
      v.strides[d] *= k;
      break;
    }
  } else if (rank > 1) {  // merge two dims where the strides allow
    for (size_t i = 0; i + 1 < v.sizes.size(); ++i) {
      if (v.strides[i] != v.strides[i + 1] * v.sizes[i + 1]) continue;
      v.sizes[i] *= v.sizes[i + 1];
      v.strides[i] = v.strides[i + 1];
      v.sizes.erase(v.sizes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      v.strides.erase(v.strides.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      break;
    }
  }
}

TEST(chains_of_views_are_planned_right) {
  Random r{std::mt19937(1)};
  int gathers = 0;
  constexpr int kChains = 20000;
  for (int i = 0; i < kChains; ++i) {
    const Dims base = random_dims(r, 4);
    View v{base, row_major(base), 0};
    for (int64_t n = r(0, 6); n > 0; --n) derive(r, v);
    gathers += check(base, v);
  }
  // Odd steps over merged dims need one; ordinary chains must not.
  EXPECT_TRUE(gathers < kChains / 20);
}

TEST(any_strides_are_planned_right) {
  Random r{std::mt19937(2)};
  int gathers = 0;
  for (int i = 0; i < 20000; ++i) {
    const Dims base = random_dims(r, 4);
    const int64_t room = hlo::product(base) - 1;
    View v;
    v.offset = r(0, room);
    int64_t left = room - v.offset;
    for (int64_t n = r(0, 4); n > 0; --n) {
      const int64_t stride = r(0, 8), most = stride ? left / stride + 1 : 3;
      v.strides.push_back(stride);
      v.sizes.push_back(r(1, std::min<int64_t>(most, 5)));
      left -= stride * (v.sizes.back() - 1);
    }
    gathers += check(base, v);
  }
  EXPECT_TRUE(gathers > 0);
}

TEST(plain_views_need_no_gather) {
  const Dims base{4, 6, 5};
  const View views[] = {
      {{4, 6, 5}, {30, 5, 1}, 0},         // all
      {{5, 4, 6}, {1, 30, 5}, 0},         // permuted
      {{6, 5}, {5, 1}, 60},               // x[2]
      {{4, 5}, {30, 1}, 15},              // x[:, 3]
      {{4, 3, 5}, {30, 10, 1}, 5},        // x[:, 1::2]
      {{24, 5}, {5, 1}, 0},               // flatten(0, 1)
      {{4, 2, 3, 5}, {30, 15, 5, 1}, 0},  // unflatten
      {{120}, {1}, 0},                    // view(-1)
      {{60}, {2}, 0},                     // view(-1)[::2]
      {{2, 4, 6, 5}, {0, 30, 5, 1}, 0},   // expand
      {{}, {}, 77},                       // an element
  };
  for (const View& v : views) {
    if (check(base, v)) test::report(__FILE__, __LINE__, "a gather for " + text(base, v));
  }
}

TEST(overlapping_views_are_gathered) {
  EXPECT_TRUE(check({10}, {{8, 3}, {1, 1}, 0}));   // unfold(0, 3, 1)
  EXPECT_TRUE(!check({10}, {{5, 2}, {2, 1}, 0}));  // unfold(0, 2, 2)
}

// x[k] in a loop is one program: what depends on the offset is where slices start, nothing else.
TEST(only_starts_depend_on_the_offset) {
  auto same = [](const Dims& base, const Dims& sizes, const Dims& strides, int64_t offset,
                 int64_t by, int64_t n) {
    const StridedPlan first = plan_view(base, sizes, strides, offset);
    for (int64_t k = 1; k < n; ++k) {
      const StridedPlan p = plan_view(base, sizes, strides, offset + k * by);
      EXPECT_TRUE(p.gather == first.gather);
      EXPECT_TRUE(p.factor == first.factor);
      EXPECT_TRUE(p.count == first.count);
      EXPECT_TRUE(p.step == first.step);
      EXPECT_TRUE(p.axis == first.axis);
    }
  };
  same({7, 4, 5}, {4, 5}, {5, 1}, 0, 20, 7);         // x[k]
  same({7, 4, 5}, {7, 5}, {20, 1}, 0, 5, 4);         // x[:, k]
  same({7, 4, 5}, {7, 4}, {20, 5}, 0, 1, 5);         // x[:, :, k]
  same({7, 4, 5}, {2, 4, 5}, {20, 5, 1}, 0, 20, 6);  // x[k:k + 2]
  same({7, 4, 5}, {7, 4, 2}, {20, 5, 1}, 0, 1, 4);   // x[..., k:k + 2]
  same({7, 4, 5}, {}, {}, 0, 1, 140);                // x.view(-1)[k]
  same({12}, {3}, {1}, 0, 1, 10);                    // x[k:k + 3]
  same({12}, {3}, {2}, 0, 1, 8);                     // x[k::2] cut to 3
}

TEST(reinterpreted_dims_keep_the_bytes) {
  EXPECT_TRUE(reinterpreted_dims({DType::kF32, {3, 4}}, DType::kI32) == (Dims{3, 4}));
  EXPECT_TRUE(reinterpreted_dims({DType::kF32, {3, 4}}, DType::kU8) == (Dims{3, 16}));
  EXPECT_TRUE(reinterpreted_dims({DType::kF32, {3, 4}}, DType::kF64) == (Dims{3, 2}));
  EXPECT_TRUE(reinterpreted_dims({DType::kF32, {4, 3}}, DType::kF64) == (Dims{6}));
  EXPECT_TRUE(reinterpreted_dims({DType::kU8, {7}}, DType::kI32) == (Dims{1}));
  EXPECT_TRUE(reinterpreted_dims({DType::kC64, {}}, DType::kF32) == (Dims{2}));
}

}  // namespace
}  // namespace tpu::trace
