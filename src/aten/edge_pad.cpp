// Padding with what lies at the edge (reflection, replication; negative padding cuts off), and the
// shuffles of pixels and channels: slices, reversals and transposes only.
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

struct Padded {
  int64_t spatial;
  Dims low, high;  // per spatial dim, first dim first
  Dims in, out;    // whole dims
};

Padded check_padding(Ctx& x, Value self, const Dims& padding, int64_t spatial, bool reflect) {
  Padded p;
  p.spatial = spatial;
  x.check(static_cast<int64_t>(padding.size()) == 2 * spatial, "padding size is expected to be ",
          2 * spatial, ", but got: ", padding.size());
  const bool rank_ok = self.rank() == spatial + 1 || self.rank() == spatial + 2;
  bool sizes_ok = true;
  for (int64_t d = self.rank() == spatial + 2 ? 1 : 0; d < self.rank(); ++d)
    sizes_ok &= self.dim(d) != 0;
  x.check(rank_ok && sizes_ok, "Expected ", spatial + 1, "D or ", spatial + 2,
          "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
          "input, but got: ",
          self.dims());
  p.in = p.out = self.dims();
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j;
    const int64_t low = padding[at(2 * (spatial - 1 - j))],
                  high = padding[at(2 * (spatial - 1 - j) + 1)];
    x.check(
        !reflect || (low < self.dim(d) && high < self.dim(d)), "Argument #", 2 * (spatial - j) + 2,
        ": Padding size should be less than the corresponding input dimension, but got: padding (",
        low, ", ", high, ") at dimension ", d, " of input ", self.dims());
    p.low.push_back(low);
    p.high.push_back(high);
    p.out[at(d)] += low + high;
  }
  const Dims tail(p.in.end() - spatial, p.in.end()), out_tail(p.out.end() - spatial, p.out.end());
  x.check(*std::min_element(out_tail.begin(), out_tail.end()) >= 1, "input (", named_sizes(tail),
          ") is too small. Calculated output ", named_sizes(out_tail));
  return p;
}

Value pad_edges(Ctx& x, Value self, const Dims& padding, int64_t spatial, bool reflect) {
  auto& b = x.b;
  const Padded p = check_padding(x, self, padding, spatial, reflect);
  x.check_supported(!hlo::is_bool(self.dtype()), "\"",
                    reflect ? "reflection_pad" : "replication_pad", spatial,
                    "d\" not implemented for 'Bool'");
  if (hlo::product(p.out) == 0) return x.zeros({self.dtype(), p.out});
  Value v = self;
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j, n = v.dim(d), low = p.low[at(j)],
                  high = p.high[at(j)];
    const auto edge = [&](int64_t i, int64_t times) {
      Dims dims = v.dims();
      dims[at(d)] = times;
      return x.broadcast(b.slice_dim(v, d, i, i + 1), dims);
    };
    Values parts;
    if (low > 0)
      parts.push_back(reflect ? b.reverse(b.slice_dim(v, d, 1, low + 1), {d}) : edge(0, low));
    const int64_t first = std::max<int64_t>(-low, 0), last = n - std::max<int64_t>(-high, 0);
    if (first < last) parts.push_back(b.slice_dim(v, d, first, last));
    if (high > 0)
      parts.push_back(reflect ? b.reverse(b.slice_dim(v, d, n - 1 - high, n - 1), {d})
                              : edge(n - 1, high));
    Value joined = parts.size() == 1 ? parts[0] : b.concatenate(parts, d);
    // Cut by more than the other side has: what was padded is cut too.
    const int64_t want = n + low + high, have = joined.dim(d);
    if (have > want)
      joined =
          low < 0 ? b.slice_dim(joined, d, have - want, have) : b.slice_dim(joined, d, 0, want);
    v = joined;
  }
  return v;
}

Value pad_edges_backward(Ctx& x, Value grad, Value self, const Dims& padding, int64_t spatial,
                         bool reflect) {
  auto& b = x.b;
  const Padded p = check_padding(x, self, padding, spatial, reflect);
  const char* names[] = {"depth", "height", "width"};
  x.check(grad.rank() == self.rank(), "gradOutput has ", grad.rank(), " dimensions, expected ",
          self.rank());
  for (int64_t d = 0; d < grad.rank(); ++d) {
    const int64_t j = d - (self.rank() - 3);
    x.check(grad.dim(d) == p.out[at(d)], "gradOutput ",
            j >= 0 && d >= self.rank() - spatial ? names[j] : "size",
            " unexpected. Expected: ", p.out[at(d)], ", Got: ", grad.dim(d));
  }
  if (self.numel() == 0) return x.zeros(self.type());
  Value v = x.to_compute(grad);
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j, n = self.dim(d), low = p.low[at(j)],
                  high = p.high[at(j)];
    const int64_t out = n + low + high;
    const auto place =
        [&](Value t, int64_t start) {  // t at [start, ...) of n elements; what lies outside is cut
          Dims l(at(v.rank()), 0), h = l;
          l[at(d)] = start, h[at(d)] = n - start - t.dim(d);
          return b.pad(t, x.constant(t.dtype(), 0), l, h);
        };
    const int64_t first = std::max<int64_t>(low, 0), last = out - std::max<int64_t>(high, 0);
    Value sum;
    const auto add = [&](Value t) { sum = sum.valid() ? b.add(sum, t) : t; };
    if (first < last) add(place(b.slice_dim(v, d, first, last), first - low));
    if (low > 0) {
      const Value side = b.slice_dim(v, d, 0, std::min(low, out));
      add(reflect ? place(b.reverse(side, {d}), 1 + low - side.dim(d))
                  : place(x.sum(side, {d}, true), 0));
    }
    if (high > 0) {
      const Value side = b.slice_dim(v, d, std::max<int64_t>(out - high, 0), out);
      add(reflect ? place(b.reverse(side, {d}), n - 1 - high)
                  : place(x.sum(side, {d}, true), n - 1));
    }
    v = sum;
  }
  return x.convert(v, self.dtype());
}

// ---- Shuffles.

Value shuffle(Ctx& x, Value v, Dims split, const Dims& order, Dims joined) {
  const Dims lead(v.dims().begin(), v.dims().end() - 3);
  Dims all;
  for (size_t i = 0; i < lead.size(); ++i) all.push_back(static_cast<int64_t>(i));
  for (const int64_t o : order) all.push_back(o + static_cast<int64_t>(lead.size()));
  split.insert(split.begin(), lead.begin(), lead.end());
  joined.insert(joined.begin(), lead.begin(), lead.end());
  return x.b.reshape(x.b.transpose(x.b.reshape(v, split), all), joined);
}

Value pixel_shuffle(Ctx& x, Value self, int64_t f) {
  x.check(self.rank() >= 3,
          "pixel_shuffle expects input to have at least 3 dimensions, but got input with ",
          self.rank(), " dimension(s)");
  x.check(f > 0, "pixel_shuffle expects a positive upscale_factor, but got ", f);
  const int64_t r = self.rank(), c = self.dim(r - 3), h = self.dim(r - 2), w = self.dim(r - 1);
  x.check(c % (f * f) == 0,
          "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
          "upscale_factor, but input.size(-3)=",
          c, " is not divisible by ", f * f);
  const int64_t o = c / (f * f);
  return shuffle(x, self, {o, f, f, h, w}, {0, 3, 1, 4, 2}, {o, h * f, w * f});
}

Value pixel_unshuffle(Ctx& x, Value self, int64_t f) {
  x.check(self.rank() >= 3,
          "pixel_unshuffle expects input to have at least 3 dimensions, but got input with ",
          self.rank(), " dimension(s)");
  x.check(f > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", f);
  const int64_t r = self.rank(), c = self.dim(r - 3), h = self.dim(r - 2), w = self.dim(r - 1);
  x.check(h % f == 0,
          "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=",
          h, " is not divisible by ", f);
  x.check(w % f == 0,
          "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)=",
          w, " is not divisible by ", f);
  return shuffle(x, self, {c, h / f, f, w / f, f}, {0, 2, 4, 1, 3}, {c * f * f, h / f, w / f});
}

Value channel_shuffle(Ctx& x, Value self, int64_t groups) {
  x.check(self.rank() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ",
          self.dims());
  x.check(groups > 0,
          "Number of groups to divide channels in must be positive. Value of groups:", groups);
  const int64_t c = self.dim(1);
  x.check(c % groups == 0, "Number of channels must be divisible by groups. Got ", c,
          " channels and ", groups, " groups.");
  Dims split = self.dims(), order;
  split[1] = groups;
  split.insert(split.begin() + 2, c / groups);
  for (int64_t i = 0; i < static_cast<int64_t>(split.size()); ++i) order.push_back(i);
  std::swap(order[1], order[2]);
  return x.b.reshape(x.b.transpose(x.b.reshape(self, split), order), self.dims());
}

template <int64_t N>
void register_padding(ops::Registry& r) {
  for (const bool reflect : {true, false}) {
    const std::string name = cat("aten::", reflect ? "reflection" : "replication", "_pad", N, "d");
    r.op(name, [reflect](Ctx& x, Value self, Dims padding) {
       return pad_edges(x, self, padding, N, reflect);
     }).layout(ops::LayoutRule::kChannelsLast);
    r.op(name + "_backward", [reflect](Ctx& x, Value grad_output, Value self, Dims padding) {
       return pad_edges_backward(x, grad_output, self, padding, N, reflect);
     }).layout(ops::LayoutRule::kChannelsLast);
  }
}

}  // namespace

void register_edge_pad(ops::Registry& r) {
  register_padding<1>(r);
  register_padding<2>(r);
  register_padding<3>(r);
  r.op("aten::pixel_shuffle", pixel_shuffle);
  r.op("aten::pixel_unshuffle", pixel_unshuffle);
  r.op("aten::channel_shuffle", channel_shuffle).layout(ops::LayoutRule::kChannelsLast);
}

}  // namespace tpu::aten
