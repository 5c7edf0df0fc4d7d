// Writes one module for each builder method and representative element types into the directory
// that is the program's first argument; tests/hlo/test_verify.py has them parsed, verified and run.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/test.h"
#include "hlo/builder.h"
#include "hlo/print.h"

namespace tpu::hlo {
namespace {

using Values = Builder::Values;
using Body = std::function<Values(Builder&, const Values&)>;

int g_written = 0;

void sample(std::string name, const std::vector<Type>& parameters, const Body& body) {
  Function f;
  Builder b(f);
  Values values;
  for (const Type& t : parameters) values.push_back(b.parameter(t));
  b.finish(body(b, values));
  for (char& c : name) {
    if (c == '<' || c == '>' || c == '.' || c == ':') c = '_';
  }
  std::ofstream out(test::args()[0] + "/" + name + ".mlir");
  out << print(f);
  TPU_CHECK(out.good(), "cannot write sample ", name, "; name a directory that can be written");
  ++g_written;
}

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> list = [] {
    std::vector<DType> all;
    for (int i = 0; i < kDTypeCount; ++i) all.push_back(static_cast<DType>(i));
    return all;
  }();
  return list;
}

// One of each class of elements.
constexpr DType kClasses[] = {DType::kBool, DType::kU8,  DType::kI32,
                              DType::kBF16, DType::kF32, DType::kC64};

// Every elementwise op with every class that it takes.
void elementwise() {
  for (int i = 0; i <= static_cast<int>(Op::kZeta); ++i) {
    const Op op = static_cast<Op>(i);
    const bool one = op <= Op::kSinh;
    for (const DType t : kClasses) {
      const Type x{t, {2, 3}};
      try {
        Function trial;
        Builder b(trial);
        const Value v = b.parameter(x);
        one ? b.unary(op, v) : b.binary(op, v, v);
      } catch (const Error&) {
        continue;
      }
      const std::string name = cat(mlir_name(op), "_", mlir_name(t));
      if (one) {
        sample(name, {x}, [&](Builder& b, const Values& v) { return Values{b.unary(op, v[0])}; });
      } else {
        sample(name, {x, x},
               [&](Builder& b, const Values& v) { return Values{b.binary(op, v[0], v[1])}; });
      }
    }
  }
}

void constants() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType t : all_dtypes()) {
    sample(cat("constant_", mlir_name(t)), {}, [&](Builder& b, const Values&) {
      Values v{b.constant(t, 1), b.constant(t, 0.3), b.splat({t, {2, 3}}, 3),
               b.splat({t, {0, 2}}, 1)};
      if (!is_complex(t)) {
        v.push_back(b.min_value(t));
        v.push_back(b.max_value(t));
      }
      if (is_float(t)) {
        const std::vector<double> odd{0.1,  1.0 / 3, -2.5,         1e-7, 12345.678,
                                      kInf, -kInf,   std::nan(""), -0.0};
        v.push_back(b.constant_floats(odd, {t, {9}}));
      }
      if (is_complex(t)) {
        v.push_back(b.constant(t, std::complex<double>(0.1, -kInf)));
        const std::vector<double> parts{0.1, 2, 3, std::nan("")};
        v.push_back(b.constant_floats(parts, {t, {2, 2}}));
      }
      if (is_integer(t)) {
        const std::vector<int64_t> all{0, 1, -1, 100, integer_min(t), integer_max(t)};
        v.push_back(b.constant_ints(all, {t, {2, 3}}));
      }
      return v;
    });
    if (!is_bool(t)) {
      sample(cat("iota_", mlir_name(t)), {},
             [&](Builder& b, const Values&) { return Values{b.iota({t, {2, 3}}, 1)}; });
    }
  }
  sample("constant_bool_list", {}, [](Builder& b, const Values&) {
    const std::vector<int64_t> bits{1, 0, 0, 1};
    return Values{b.constant_ints(bits, {DType::kBool, {2, 2}})};
  });
  sample("constant_empty_list", {},
         [](Builder& b, const Values&) { return Values{b.constant_ints({}, {DType::kI64, {0}})}; });
}

void conversions() {
  const DType kTargets[] = {DType::kBool, DType::kI32,      DType::kU8,  DType::kBF16, DType::kF32,
                            DType::kF64,  DType::kF8E4M3FN, DType::kC64, DType::kF16};
  for (const DType from : kClasses) {
    for (const DType to : kTargets) {
      if (from == to || (is_complex(from) && !is_complex(to))) continue;
      sample(cat("convert_", mlir_name(from), "_", mlir_name(to)), {{from, {4}}},
             [&](Builder& b, const Values& v) { return Values{b.convert(v[0], to)}; });
    }
    sample(cat("select_", mlir_name(from)),
           {{DType::kBool, {2, 3}}, {from, {2, 3}}, {from, {2, 3}}},
           [](Builder& b, const Values& v) { return Values{b.select(v[0], v[1], v[2])}; });
    for (int c = 0; c < 6; ++c) {
      if (is_complex(from) && c > 1) continue;
      sample(cat("compare_", c, "_", mlir_name(from)), {{from, {3}}, {from, {3}}},
             [&](Builder& b, const Values& v) {
               return Values{b.compare(static_cast<Cmp>(c), v[0], v[1])};
             });
    }
    if (is_integer(from) || is_float(from)) {
      sample(cat("clamp_", mlir_name(from)), {{from, {}}, {from, {3}}, {from, {3}}},
             [](Builder& b, const Values& v) { return Values{b.clamp(v[0], v[1], v[2])}; });
    }
  }
  sample("compare_total", {{DType::kF32, {3}}, {DType::kF32, {3}}},
         [](Builder& b, const Values& v) { return Values{b.compare(Cmp::kLt, v[0], v[1], true)}; });
  sample("select_scalar", {{DType::kBool, {}}, {DType::kF32, {3}}, {DType::kF32, {3}}},
         [](Builder& b, const Values& v) { return Values{b.select(v[0], v[1], v[2])}; });
  sample("bitcast_same", {{DType::kF32, {2, 4}}}, [](Builder& b, const Values& v) {
    return Values{b.bitcast_convert(v[0], {DType::kI32, {2, 4}})};
  });
  sample("bitcast_narrow", {{DType::kF32, {2, 4}}}, [](Builder& b, const Values& v) {
    return Values{b.bitcast_convert(v[0], {DType::kU8, {2, 4, 4}})};
  });
  sample("bitcast_wide", {{DType::kU16, {2, 4}}}, [](Builder& b, const Values& v) {
    return Values{b.bitcast_convert(v[0], {DType::kU64, {2}})};
  });
  for (const DType t : {DType::kF32, DType::kF64}) {
    sample(cat("complex_", mlir_name(t)), {{t, {3}}, {t, {3}}}, [](Builder& b, const Values& v) {
      const Value c = b.complex(v[0], v[1]);
      return Values{c, b.real(c), b.imag(c), b.imag(v[0])};
    });
  }
  for (const DType t : {DType::kF32, DType::kF16, DType::kF64}) {
    sample(cat("is_finite_", mlir_name(t)), {{t, {3}}},
           [](Builder& b, const Values& v) { return Values{b.is_finite(v[0])}; });
    sample(cat("reduce_precision_", mlir_name(t)), {{t, {3}}},
           [](Builder& b, const Values& v) { return Values{b.reduce_precision(v[0], 5, 2)}; });
  }
}

void shapes() {
  for (const DType t : kClasses) {
    const std::string suffix = cat("_", mlir_name(t));
    const Type x{t, {2, 3}};
    sample("broadcast_in_dim" + suffix, {x, {t, {}}}, [](Builder& b, const Values& v) {
      return Values{b.broadcast_in_dim(v[0], {3, 4, 2}, {2, 0}), b.broadcast_scalar(v[1], {2, 0})};
    });
    sample("reshape" + suffix, {x}, [](Builder& b, const Values& v) {
      return Values{b.reshape(v[0], {3, 2}), b.reshape(v[0], {6})};
    });
    sample("transpose" + suffix, {x},
           [](Builder& b, const Values& v) { return Values{b.transpose(v[0], {1, 0})}; });
    sample("reverse" + suffix, {x},
           [](Builder& b, const Values& v) { return Values{b.reverse(v[0], {1})}; });
    sample("slice" + suffix, {x}, [](Builder& b, const Values& v) {
      return Values{b.slice(v[0], {0, 1}, {1, 3}), b.slice_dim(v[0], 1, 0, 3, 2)};
    });
    sample("dynamic_slice" + suffix, {x, {DType::kI32, {}}, {DType::kI32, {}}},
           [](Builder& b, const Values& v) {
             return Values{b.dynamic_slice(v[0], {v[1], v[2]}, {1, 2})};
           });
    sample("dynamic_update_slice" + suffix, {x, {t, {1, 2}}, {DType::kI64, {}}, {DType::kI64, {}}},
           [](Builder& b, const Values& v) {
             return Values{b.dynamic_update_slice(v[0], v[1], {v[2], v[3]})};
           });
    sample("pad" + suffix, {x, {t, {}}}, [](Builder& b, const Values& v) {
      return Values{b.pad(v[0], v[1], {1, -1}, {0, 2}, {2, 0}), b.pad(v[0], v[1], {1, 0}, {0, 0})};
    });
    sample("concatenate" + suffix, {x, {t, {2, 1}}}, [](Builder& b, const Values& v) {
      return Values{b.concatenate({v[0], v[1], v[0]}, 1)};
    });
    sample("barrier" + suffix, {x, x},
           [](Builder& b, const Values& v) { return b.optimization_barrier({v[0], v[1]}); });
  }
}

void contractions() {
  for (const DType t : {DType::kI32, DType::kU8, DType::kF16, DType::kBF16, DType::kF32,
                        DType::kF64, DType::kC64, DType::kF8E4M3FN}) {
    const std::string suffix = cat("_", mlir_name(t));
    const DType wide = is_float(t)     ? (t == DType::kF64 ? t : DType::kF32)
                       : is_complex(t) ? t
                                       : DType::kI32;
    sample("dot" + suffix, {{t, {2, 3}}, {t, {3, 4}}}, [&](Builder& b, const Values& v) {
      return Values{b.dot_general(v[0], v[1], {.lhs_contract = {1}, .rhs_contract = {0}},
                                  Precision::kDefault, is_unsigned(t) ? t : wide)};
    });
    sample("dot_batch" + suffix, {{t, {5, 2, 3}}, {t, {3, 5, 4}}},
           [&](Builder& b, const Values& v) {
             const DotDims d{{0}, {1}, {2}, {0}};
             return Values{b.dot_general(v[0], v[1], d, Precision::kHighest, t)};
           });
    if (is_integer(t) || is_float8(t)) continue;
    sample("conv" + suffix, {{t, {2, 4, 9, 8}}, {t, {6, 2, 3, 2}}},
           [&](Builder& b, const Values& v) {
             ConvDims d;
             d.input_spatial = d.kernel_spatial = d.output_spatial = {2, 3};
             ConvWindow w;
             w.strides = {2, 1};
             w.pad_low = {1, 0};
             w.pad_high = {0, 2};
             w.rhs_dilation = {1, 2};
             w.feature_groups = 2;
             return Values{b.convolution(v[0], v[1], d, w, Precision::kHigh, t)};
           });
  }
  sample("dot_outer", {{DType::kF32, {2}}, {DType::kF32, {3}}}, [](Builder& b, const Values& v) {
    return Values{b.dot_general(v[0], v[1], {}, Precision::kDefault, DType::kF32)};
  });
  sample("conv_nhwc_transposed", {{DType::kF32, {1, 5, 2}}, {DType::kF32, {3, 4, 2}}},
         [](Builder& b, const Values& v) {
           const ConvDims d{0, 2, {1}, 2, 1, {0}, 0, 2, {1}};
           ConvWindow w{{1}, {2}, {2}, {2}, {1}};
           w.reversal = {true};
           return Values{b.convolution(v[0], v[1], d, w, Precision::kDefault, DType::kF32)};
         });
  sample("conv_pointwise", {{DType::kF32, {3, 2}}, {DType::kF32, {4, 2}}},
         [](Builder& b, const Values& v) {
           return Values{b.convolution(v[0], v[1], {}, {}, Precision::kDefault, DType::kF32)};
         });
  sample("conv_batch_groups", {{DType::kF32, {4, 2, 5}}, {DType::kF32, {6, 2, 3}}},
         [](Builder& b, const Values& v) {
           ConvDims d;
           d.input_spatial = d.kernel_spatial = d.output_spatial = {2};
           ConvWindow w;
           w.batch_groups = 2;
           return Values{b.convolution(v[0], v[1], d, w, Precision::kDefault, DType::kF32)};
         });
}

void reductions() {
  for (const DType t : kClasses) {
    const std::string suffix = cat("_", mlir_name(t));
    const Type x{t, {3, 4, 5}}, s{t, {}};
    sample("reduce_add" + suffix, {x, s}, [](Builder& b, const Values& v) {
      return Values{b.reduce(v[0], v[1], {0, 2}, Op::kAdd)};
    });
    sample("reduce_window_max" + suffix, {x, s}, [&](Builder& b, const Values& v) {
      if (is_complex(t))
        return Values{b.reduce_window(v[0], v[1], {{1, 2, 3}, {1, 2, 1}, {}, {}}, Op::kAdd)};
      const ReduceWindow w{{1, 2, 3}, {1, 2, 1}, {0, 1, 0}, {0, 0, 2}, {1, 1, 2}, {1, 2, 1}};
      return Values{b.reduce_window(v[0], v[1], w, Op::kMaximum)};
    });
    sample("scatter_set" + suffix, {x, {DType::kI32, {2, 1}}, {t, {2, 4, 5}}},
           [](Builder& b, const Values& v) {
             const ScatterDims d{.update_window_dims = {1, 2},
                                 .inserted_window_dims = {0},
                                 .scatter_dims_to_operand_dims = {0},
                                 .index_vector_dim = 1};
             return Values{b.scatter(v[0], v[1], v[2], d, std::nullopt, true, true)};
           });
    sample("gather" + suffix, {x, {DType::kI32, {2, 1}}}, [](Builder& b, const Values& v) {
      const GatherDims d{.offset_dims = {1, 2},
                         .collapsed_slice_dims = {0},
                         .start_index_map = {0},
                         .index_vector_dim = 1};
      return Values{b.gather(v[0], v[1], d, {1, 4, 5})};
    });
    if (is_complex(t)) continue;
    sample("select_and_scatter" + suffix, {{t, {4, 5}}, {t, {2, 2}}, s},
           [](Builder& b, const Values& v) {
             const ReduceWindow w{{2, 2}, {2, 2}, {0, 0}, {0, 0}};
             return Values{b.select_and_scatter(v[0], v[1], v[2], w, Cmp::kGe, Op::kAdd)};
           });
    sample("sort" + suffix, {{t, {3, 4}}, {DType::kI32, {3, 4}}}, [](Builder& b, const Values& v) {
      return b.sort({v[0], v[1]}, 1, true, [&](const Values& a) {
        return Values{b.compare(Cmp::kLt, a[0], a[1], is_float(a[0].dtype()))};
      });
    });
    if (is_bool(t)) continue;
    sample("top_k" + suffix, {{t, {3, 4}}},
           [](Builder& b, const Values& v) { return b.top_k(v[0], 2); });
  }
  const Type f{DType::kF32, {3, 4}}, i{DType::kI32, {3, 4}};
  sample("reduce_argmax", {f, i}, [](Builder& b, const Values& v) {
    const Values inits{b.min_value(DType::kF32), b.constant(DType::kI32, 0)};
    return b.reduce({v[0], v[1]}, inits, {1}, [&](const Values& a) {
      const Value left = b.compare(Cmp::kGe, a[0], a[2]);
      return Values{b.select(left, a[0], a[2]), b.select(left, a[1], a[3])};
    });
  });
  sample("scatter_add_batch",
         {{DType::kF32, {5, 6}}, {DType::kI64, {5, 2, 1}}, {DType::kF32, {5, 2}}},
         [](Builder& b, const Values& v) {
           const ScatterDims d{.inserted_window_dims = {1},
                               .scatter_dims_to_operand_dims = {1},
                               .input_batching_dims = {0},
                               .scatter_indices_batching_dims = {0},
                               .index_vector_dim = 2};
           return Values{b.scatter(v[0], v[1], v[2], d, Op::kAdd)};
         });
  sample("gather_batch", {{DType::kF32, {5, 6}}, {DType::kI64, {5, 2, 1}}},
         [](Builder& b, const Values& v) {
           const GatherDims d{.collapsed_slice_dims = {1},
                              .start_index_map = {1},
                              .operand_batching_dims = {0},
                              .start_indices_batching_dims = {0},
                              .index_vector_dim = 2};
           return Values{b.gather(v[0], v[1], d, {1, 1}, true)};
         });
  sample("scatter_two", {f, f, {DType::kI32, {2}}, {DType::kF32, {2, 4}}, {DType::kF32, {2, 4}}},
         [](Builder& b, const Values& v) {
           const ScatterDims d{.update_window_dims = {1},
                               .inserted_window_dims = {0},
                               .scatter_dims_to_operand_dims = {0},
                               .index_vector_dim = 1};
           return b.scatter({v[0], v[1]}, v[2], {v[3], v[4]}, d, [&](const Values& a) {
             return Values{b.add(a[0], a[2]), b.maximum(a[1], a[3])};
           });
         });
}

void control() {
  const Type s{DType::kI32, {}}, f{DType::kF32, {3}};
  sample("while", {s, f, f}, [](Builder& b, const Values& v) {
    return b.while_loop(
        {v[0], v[1]},
        [&](const Values& a) {
          return Values{b.compare(Cmp::kLt, a[0], b.constant(DType::kI32, 5))};
        },
        [&](const Values& a) {
          return Values{b.add(a[0], b.constant(DType::kI32, 1)), b.add(a[1], v[2])};
        });
  });
  sample("if", {{DType::kBool, {}}, f}, [](Builder& b, const Values& v) {
    return b.if_else(
        v[0], [&] { return [&](const Values&) { return Values{b.neg(v[1]), v[1]}; }; }(),
        [&](const Values&) { return Values{v[1], b.mul(v[1], v[1])}; });
  });
  sample("case", {s, f}, [](Builder& b, const Values& v) {
    return b.switch_case(v[0], {[&](const Values&) { return Values{v[1]}; },
                                [&](const Values&) { return Values{b.neg(v[1])}; },
                                [&](const Values&) { return Values{b.unary(Op::kSqrt, v[1])}; }});
  });
  sample("nested", {s, f}, [](Builder& b, const Values& v) {
    return b.while_loop(
        {v[0], v[1]},
        [&](const Values& a) {
          return Values{b.compare(Cmp::kLt, a[0], b.constant(DType::kI32, 5))};
        },
        [&](const Values& a) {
          const Value sum = b.reduce(a[1], b.constant(DType::kF32, 0), {0}, Op::kAdd);
          const Value big = b.compare(Cmp::kGt, sum, b.constant(DType::kF32, 10));
          const Value next = b.if_else(
              big, [&](const Values&) { return Values{a[1]}; },
              [&](const Values&) {
                return Values{b.add(a[1], b.splat({DType::kF32, {3}}, 1))};
              })[0];
          return Values{b.add(a[0], b.constant(DType::kI32, 1)), next};
        });
  });
  sample("custom_call", {f}, [](Builder& b, const Values& v) {
    Values all =
        b.custom_call("a", v, {v[0].type(), {DType::kI32, {}}}, "{factor = 3.0 : f32}", true);
    for (const Value& x : b.custom_call("b", v, {v[0].type()}, "say \"x\"\n\\", false, 2,
                                        {{"mhlo.frontend_attributes", Raw{"{k = \"v\"}"}}})) {
      all.push_back(x);
    }
    for (const Value& x : b.custom_call("c", {}, {}, "", true)) all.push_back(x);
    return all;
  });
  sample("no_results", {f}, [](Builder&, const Values&) { return Values{}; });
  sample("passed_through", {f, s}, [](Builder&, const Values& v) { return v; });
  sample("located", {f}, [](Builder& b, const Values& v) {
    b.set_location("aten::add, \"train\".py:12\n\\ \xc3\xa9");
    const Value x = b.add(v[0], v[0]);
    b.set_location("aten::sort");
    const Values sorted = b.sort(
        {x}, 0, false, [&](const Values& a) { return Values{b.compare(Cmp::kLt, a[0], a[1])}; });
    b.set_location("");
    return Values{b.neg(sorted[0])};
  });
}

void linear_algebra() {
  for (const DType t : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    const std::string suffix = cat("_", mlir_name(t));
    sample("cholesky" + suffix, {{t, {2, 3, 3}}},
           [](Builder& b, const Values& v) { return Values{b.cholesky(v[0], true)}; });
    for (const char form : {'N', 'T', 'C'}) {
      sample(cat("triangular_solve_", form, suffix), {{t, {3, 3}}, {t, {3, 2}}},
             [&](Builder& b, const Values& v) {
               return Values{b.triangular_solve(v[0], v[1], true, false, form == 'T', form)};
             });
    }
    if (!is_complex(t)) {
      sample("rfft" + suffix, {{t, {2, 6}}}, [](Builder& b, const Values& v) {
        const Value c = b.fft(v[0], FftKind::kRfft, {6});
        return Values{c, b.fft(c, FftKind::kIrfft, {6})};
      });
    } else {
      sample("fft" + suffix, {{t, {2, 6}}}, [](Builder& b, const Values& v) {
        const Value c = b.fft(v[0], FftKind::kFft, {2, 6});
        return Values{c, b.fft(c, FftKind::kIfft, {2, 6})};
      });
    }
  }
  for (const DType t : {DType::kU8, DType::kU16, DType::kU32, DType::kU64}) {
    for (const auto a : {RngAlgorithm::kDefault, RngAlgorithm::kThreeFry, RngAlgorithm::kPhilox}) {
      sample(cat("rng_", a, "_", mlir_name(t)), {{DType::kU64, {2}}},
             [&](Builder& b, const Values& v) {
               const auto [state, bits] = b.rng_bit_generator(a, v[0], {t, {3, 4}});
               return Values{state, bits};
             });
    }
  }
}

void collectives() {
  const Groups one{{{0}}}, pairs{{{0, 1}, {2, 3}}, 7};
  for (const Groups& g : {one, pairs}) {
    const std::string suffix = cat("_", g.group_size());
    sample("collectives" + suffix, {{DType::kF32, {4, 6}}}, [&](Builder& b, const Values& v) {
      return Values{b.all_gather(v[0], 1, g),
                    b.all_reduce(v[0], Op::kAdd, g),
                    b.reduce_scatter(v[0], 0, Op::kMaximum, g),
                    b.all_to_all(v[0], 0, 1, g),
                    b.collective_permute(v[0], {{0, 0}}, g.channel),
                    b.replica_id(),
                    b.partition_id()};
    });
  }
}

}  // namespace

TEST(print_samples) {
  if (test::args().empty()) SKIP("give a directory to write the samples to");
  std::filesystem::create_directories(test::args()[0]);
  elementwise();
  constants();
  conversions();
  shapes();
  contractions();
  reductions();
  control();
  linear_algebra();
  collectives();
  std::printf("%d modules written\n", g_written);
  EXPECT_TRUE(g_written >= 150);
}

}  // namespace tpu::hlo
