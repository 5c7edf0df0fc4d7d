// Sampling of images at the points of a grid. Coordinates are kept per spatial dim (depth, height,
// width) as [n, points]; every choice of one tap per dim is a corner, gathered for all channels at
// once.
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::scalar_type_name;

enum Interpolation : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Grid {
  int64_t spatial, n, channels, points, mode, padding;
  bool align_corners;
  Dims in, out;  // spatial sizes
  Value input;   // compute type
  DType wide;
};

// A coordinate and its derivative by the grid's number (valid only if wanted).
struct Coordinate {
  Value at, slope;
};

Grid make_grid(Ctx& x, Value input, Value grid, int64_t mode, int64_t padding, bool align_corners,
               int64_t spatial) {
  Grid g;
  const int64_t rank = spatial + 2;
  x.check(input.rank() == rank && grid.rank() == rank, "grid_sampler(): expected ", rank,
          "D input and grid with same number of dimensions, but got input with sizes ",
          input.dims(), " and grid with sizes ", grid.dims());
  x.check(input.dim(0) == grid.dim(0),
          "grid_sampler(): expected grid and input to have same batch size, but got input "
          "with sizes ",
          input.dims(), " and grid with sizes ", grid.dims());
  x.check(grid.dim(rank - 1) == spatial, "grid_sampler(): expected grid to have size ", spatial,
          " in last dimension, but got grid with sizes ", grid.dims());
  for (int64_t d = 2; d < rank; ++d) {
    x.check(
        input.dim(d) > 0,
        "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes ",
        input.dims(), " with dimension ", d, " being empty");
  }
  x.check(spatial == 2 || mode != kBicubic,
          "grid_sampler(): bicubic interpolation only supports 4D input");
  x.check(input.dtype() == grid.dtype(), "expected scalar type ", scalar_type_name(input.dtype()),
          " but found ", scalar_type_name(grid.dtype()));
  x.check_supported(hlo::is_float(input.dtype()), "\"grid_sampler_", spatial,
                    "d_cpu\" not implemented for '", scalar_type_name(input.dtype()), "'");
  g.spatial = spatial, g.mode = mode, g.padding = padding, g.align_corners = align_corners;
  g.n = input.dim(0), g.channels = input.dim(1);
  g.in = Dims(input.dims().begin() + 2, input.dims().end());
  g.out = Dims(grid.dims().begin() + 1, grid.dims().end() - 1);
  g.points = hlo::product(g.out);
  g.input = x.to_compute(input);
  g.wide = g.input.dtype();
  return g;
}

Value scalar_of(Ctx& x, Value like, double v) { return x.like(like, v); }

// Into the image: unchanged, clipped or reflected; NaN is a place before the first pixel. Slopes at
// a border are 0.
Coordinate into_image(Ctx& x, const Grid& g, Coordinate c, int64_t size) {
  auto& b = x.b;
  if (g.padding == kZeros) return c;
  const auto constant = [&](double v) { return scalar_of(x, c.at, v); };
  if (g.padding == kReflection) {
    const double low = g.align_corners ? 0 : -0.5;
    const double span = g.align_corners ? static_cast<double>(size - 1) : static_cast<double>(size);
    if (span == 0) {
      c.at = constant(0);
      if (c.slope.valid()) c.slope = constant(0);
    } else {
      const Value moved = b.sub(c.at, constant(low));
      const Value distance = b.unary(Op::kAbs, moved);
      const Value extra = b.binary(Op::kRemainder, distance, constant(span));
      const Value flips = b.unary(Op::kFloor, b.div(distance, constant(span)));
      const Value odd =
          b.compare(Cmp::kNe, b.binary(Op::kRemainder, flips, constant(2)), constant(0));
      c.at = b.add(b.select(odd, b.sub(constant(span), extra), extra), constant(low));
      if (c.slope.valid()) {
        const Value negative = b.compare(Cmp::kLt, moved, constant(0));
        const Value turned = b.binary(Op::kXor, negative, odd);
        c.slope = b.select(turned, b.neg(c.slope), c.slope);
      }
    }
  }
  const Value last = constant(static_cast<double>(size - 1));
  if (c.slope.valid()) {
    const Value inside =
        b.logical_and(b.compare(Cmp::kGt, c.at, constant(0)), b.compare(Cmp::kLt, c.at, last));
    c.slope = b.select(inside, c.slope, constant(0));
  }
  c.at = b.minimum(last, b.maximum(b.select(x.is_nan(c.at), constant(0), c.at), constant(0)));
  return c;
}

// Per spatial dim. The grid's last dim lists the width first.
std::vector<Coordinate> coordinates(Ctx& x, const Grid& g, Value grid, bool slopes) {
  auto& b = x.b;
  const Value flat = x.to_compute(b.reshape(grid, {g.n, g.points, g.spatial}));
  std::vector<Coordinate> all;
  for (int64_t j = 0; j < g.spatial; ++j) {
    const int64_t k = g.spatial - 1 - j;
    const auto size = static_cast<double>(g.in[at(j)]);
    const Value v = b.reshape(b.slice_dim(flat, 2, k, k + 1), {g.n, g.points});
    const auto constant = [&](double c) { return scalar_of(x, v, c); };
    Coordinate c;
    const Value shifted = b.add(v, constant(1));
    if (g.align_corners) {
      c.at = b.mul(b.mul(shifted, constant(0.5)), constant(size - 1));
      if (slopes) c.slope = constant((size - 1) / 2);
    } else {
      c.at = b.mul(b.sub(b.mul(shifted, constant(size)), constant(1)), constant(0.5));
      if (slopes) c.slope = constant(size / 2);
    }
    // Cubic taps are brought into the image one by one.
    all.push_back(g.mode == kBicubic ? c : into_image(x, g, c, g.in[at(j)]));
  }
  return all;
}

// One tap of one dim: a whole coordinate, its weight and (for gradients) the weight's derivative.
struct Tap {
  Value index;  // int32 [n, points]; may lie outside
  Value weight, slope;
};

// Clamped first: a huge or NaN coordinate must not wrap around into the image.
Value to_index(Ctx& x, Value whole, int64_t size) {
  const auto constant = [&](double v) { return x.constant(whole.dtype(), v); };
  const Value safe = x.b.select(x.is_nan(whole), x.like(whole, -2), whole);
  return x.b.convert(x.b.clamp(constant(-2), safe, constant(static_cast<double>(size) + 1)),
                     DType::kI32);
}

Value polynomial(Ctx& x, Value v, std::initializer_list<double> highest_first) {
  Value r;
  for (const double c : highest_first) {
    r = r.valid() ? x.b.add(x.b.mul(r, v), x.like(v, c)) : x.like(v, c);
  }
  return r;
}

std::vector<Tap> taps_at(Ctx& x, const Grid& g, Coordinate c, int64_t size, bool slopes) {
  auto& b = x.b;
  const auto constant = [&](double v) { return scalar_of(x, c.at, v); };
  if (g.mode == kNearest) {
    return {{to_index(x, b.unary(Op::kRoundNearestEven, c.at), size), {}, {}}};
  }
  const Value floor = b.unary(Op::kFloor, c.at);
  const Value f = b.sub(c.at, floor);
  if (g.mode == kBilinear) {
    const Value next = b.add(floor, constant(1));
    Tap low{to_index(x, floor, size), b.sub(next, c.at), {}}, high{to_index(x, next, size), f, {}};
    if (slopes) low.slope = constant(-1), high.slope = constant(1);
    return {low, high};
  }
  // Cubic convolution with a = -0.75: weights at distances 1 + f, f, 1 - f, 2 - f.
  const double a = -0.75;
  const Value distance[] = {b.add(f, constant(1)), f, b.sub(constant(1), f), b.sub(constant(2), f)};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k) {
    const bool far = k == 0 || k == 3;
    const Value d = distance[k];
    Tap t;
    t.weight = far ? polynomial(x, d, {a, -5 * a, 8 * a, -4 * a})
                   : polynomial(x, d, {a + 2, -(a + 3), 0, 1});
    if (slopes) {
      t.slope = far ? polynomial(x, d, {3 * a, -10 * a, 8 * a})
                    : polynomial(x, d, {3 * (a + 2), -2 * (a + 3), 0});
      if (k >= 2) t.slope = b.neg(t.slope);
    }
    const Coordinate here = into_image(x, g, {b.add(floor, constant(k - 1)), {}}, size);
    t.index = to_index(x, b.unary(Op::kFloor, here.at), size);
    taps.push_back(t);
  }
  return taps;
}

// Every choice of one tap per dim.
template <class F>
void for_each_corner(const std::vector<std::vector<Tap>>& taps, F f) {
  std::vector<size_t> pick(taps.size(), 0);
  for (;;) {
    std::vector<const Tap*> corner;
    for (size_t j = 0; j < taps.size(); ++j) corner.push_back(&taps[j][pick[j]]);
    f(corner);
    size_t j = taps.size();
    while (j > 0 && ++pick[j - 1] == taps[j - 1].size()) pick[--j] = 0;
    if (j == 0) return;
  }
}

Value position_of(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner, bool clamped) {
  const Dims one{g.n, g.points, 1};
  Values parts{x.b.iota({DType::kI32, one}, 0)};
  for (size_t j = 0; j < corner.size(); ++j) {
    Value i = corner[j]->index;
    if (clamped)
      i = x.b.clamp(x.constant(DType::kI32, 0), i, x.b.constant(DType::kI32, g.in[j] - 1));
    parts.push_back(x.b.reshape(i, one));
  }
  return x.b.concatenate(parts, 2);
}

Value inside(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner) {
  Value all;
  for (size_t j = 0; j < corner.size(); ++j) {
    const Value i = corner[j]->index;
    const Value in = x.b.logical_and(x.b.compare(Cmp::kGe, i, x.like(i, 0)),
                                     x.b.compare(Cmp::kLt, i, x.b.splat(i.type(), g.in[j])));
    all = all.valid() ? x.b.logical_and(all, in) : in;
  }
  return all;
}

Value over_channels(Ctx& x, const Grid& g, Value v) {
  return x.b.broadcast_in_dim(v, {g.n, g.channels, g.points}, {0, 2});
}

// The input at a corner, 0 outside: [n, channels, points].
Value value_at(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner) {
  hlo::GatherDims d{.offset_dims = {1},
                    .collapsed_slice_dims = {0},
                    .start_index_map = {0},
                    .index_vector_dim = 2};
  Dims sizes(at(g.spatial + 2), 1);
  sizes[1] = g.channels;
  for (int64_t j = 0; j < g.spatial; ++j) {
    d.collapsed_slice_dims.push_back(j + 2);
    d.start_index_map.push_back(j + 2);
  }
  const Value v = x.b.gather(g.input, position_of(x, g, corner, true), d, sizes);
  return x.b.select(over_channels(x, g, inside(x, g, corner)), v, x.like(v, 0));
}

Value times(Ctx& x, Value a, Value c) { return !a.valid() ? c : !c.valid() ? a : x.b.mul(a, c); }

std::vector<std::vector<Tap>> all_taps(Ctx& x, const Grid& g, const std::vector<Coordinate>& c,
                                       bool slopes) {
  std::vector<std::vector<Tap>> taps;
  for (size_t j = 0; j < c.size(); ++j) taps.push_back(taps_at(x, g, c[j], g.in[j], slopes));
  return taps;
}

Value grid_sampler(Ctx& x, Value input, Value grid, int64_t mode, int64_t padding,
                   bool align_corners, int64_t spatial) {
  const Grid g = make_grid(x, input, grid, mode, padding, align_corners, spatial);
  Dims result{g.n, g.channels};
  result.insert(result.end(), g.out.begin(), g.out.end());
  if (hlo::product(result) == 0) return x.zeros({input.dtype(), result});
  Value sum;
  for_each_corner(all_taps(x, g, coordinates(x, g, grid, false), false),
                  [&](const std::vector<const Tap*>& corner) {
                    Value weight;
                    for (const Tap* t : corner) weight = times(x, weight, t->weight);
                    Value v = value_at(x, g, corner);
                    if (weight.valid()) v = x.b.mul(v, over_channels(x, g, weight));
                    sum = sum.valid() ? x.b.add(sum, v) : v;
                  });
  return x.convert(x.b.reshape(sum, result), input.dtype());
}

std::array<Value, 2> grid_sampler_backward(Ctx& x, Value grad_output, Value input, Value grid,
                                           int64_t mode, int64_t padding, bool align_corners,
                                           const std::vector<bool>& output_mask, int64_t spatial) {
  auto& b = x.b;
  const Grid g = make_grid(x, input, grid, mode, padding, align_corners, spatial);
  x.check(grad_output.rank() == spatial + 2 && grad_output.numel() == g.n * g.channels * g.points,
          "grid_sampler backward: grad_output ", grad_output.dims(), " does not fit input ",
          input.dims(), " and grid ", grid.dims());
  const bool want_input = output_mask[0];
  if (grad_output.numel() == 0) {
    return {want_input ? x.zeros(input.type()) : Value{}, x.zeros(grid.type())};
  }
  const Value grad = x.to_compute(b.reshape(grad_output, {g.n, g.channels, g.points}));
  const std::vector<Coordinate> c = coordinates(x, g, grid, true);
  Values updates, positions;
  std::vector<Value> slopes(at(spatial));  // [n, points], per dim
  for_each_corner(all_taps(x, g, c, true), [&](const std::vector<const Tap*>& corner) {
    Value weight;
    for (const Tap* t : corner) weight = times(x, weight, t->weight);
    if (want_input) {
      updates.push_back(weight.valid() ? b.mul(grad, over_channels(x, g, weight)) : grad);
      positions.push_back(position_of(x, g, corner, false));  // a scatter drops what lies outside
    }
    if (mode == kNearest) return;
    const Value share = x.sum(b.mul(value_at(x, g, corner), grad), {1});
    for (size_t j = 0; j < corner.size(); ++j) {
      Value w = corner[j]->slope;
      for (size_t k = 0; k < corner.size(); ++k) {
        if (k != j) w = times(x, w, corner[k]->weight);
      }
      const Value part = b.mul(share, w);
      slopes[j] = slopes[j].valid() ? b.add(slopes[j], part) : part;
    }
  });
  Value grad_input;
  if (want_input) {
    hlo::ScatterDims d{.update_window_dims = {1},
                       .inserted_window_dims = {0},
                       .scatter_dims_to_operand_dims = {0},
                       .index_vector_dim = 2};
    for (int64_t j = 0; j < spatial; ++j) {
      d.inserted_window_dims.push_back(j + 2);
      d.scatter_dims_to_operand_dims.push_back(j + 2);
    }
    const auto join = [&](const Values& v, int64_t dim) {
      return v.size() == 1 ? v[0] : b.concatenate(v, dim);
    };
    grad_input = x.convert(
        b.scatter(x.zeros(g.input.type()), join(positions, 1), join(updates, 2), d, Op::kAdd),
        input.dtype());
  }
  if (mode == kNearest) return {grad_input, x.zeros(grid.type())};
  Values columns;
  for (int64_t k = 0; k < spatial; ++k) {
    const size_t j = at(spatial - 1 - k);
    columns.push_back(b.reshape(b.mul(slopes[j], c[j].slope), {g.n, g.points, 1}));
  }
  return {grad_input, x.convert(b.reshape(b.concatenate(columns, 2), grid.dims()), grid.dtype())};
}

template <int64_t N>
void register_grid(ops::Registry& r) {
  r.op(cat("aten::grid_sampler_", N, "d"),
       [](Ctx& x, Value input, Value grid, int64_t interpolation_mode, int64_t padding_mode,
          bool align_corners) {
         return grid_sampler(x, input, grid, interpolation_mode, padding_mode, align_corners, N);
       });
  r.op(cat("aten::grid_sampler_", N, "d_backward"),
       [](Ctx& x, Value grad_output, Value input, Value grid, int64_t interpolation_mode,
          int64_t padding_mode, bool align_corners, std::vector<bool> output_mask) {
         return grid_sampler_backward(x, grad_output, input, grid, interpolation_mode, padding_mode,
                                      align_corners, output_mask, N);
       });
}

}  // namespace

void register_grid_sampler(ops::Registry& r) {
  register_grid<2>(r);
  register_grid<3>(r);
}

}  // namespace tpu::aten
