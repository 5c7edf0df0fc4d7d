#include "trace/instance.h"

#include <cmath>

#include "base/hash.h"

namespace tpu::trace {
namespace {

using hlo::Builder;

// Stands in for run-time operands while types are inferred, and notes what was asked for.
class InferHost final : public ops::Host {
 public:
  explicit InferHost(Instance& inst) : inst_(inst) {}
  hlo::Value scalar(Builder& b, int32_t operand, DType dtype) override {
    inst_.scalars.push_back({operand, dtype});
    return b.constant(dtype, 0);
  }
  void check_numbers(ops::NumberCheck check) override {
    inst_.number_checks.push_back(std::move(check));
  }
  hlo::Value random_state(Builder& b, int64_t count) override {
    inst_.random_draws += (count + 3) / 4 * 4;  // whole Philox blocks
    return b.splat({DType::kU64, {2}}, 0);
  }
  void assertion(Builder&, hlo::Value, hlo::Value, ErrorKind, std::string, bool) override {
    ++inst_.assertions;
  }

 private:
  Instance& inst_;
};

bool is_double(DType t) { return t == DType::kF64 || t == DType::kC128; }

// The type in which a 0-d host tensor enters the program. A Python float is a double on the host;
// it comes as float32 unless the call computes in double, so that no double appears in float32
// programs.
DType scalar_operand_type(const ArgSpec& a, bool has_double) {
  if (a.wrapped && a.dtype == DType::kF64 && !has_double) return DType::kF32;
  if (a.wrapped && a.dtype == DType::kC128 && !has_double) return DType::kC64;
  return a.dtype;
}

hlo::Value tensor_scalar(Builder& b, ops::Host& host, const ArgSpec& a, DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kI32:
    case DType::kI64:
    case DType::kF32:
    case DType::kF64:
    case DType::kC64:
    case DType::kC128: return host.scalar(b, a.operand, t);
    default:
      // Narrow types travel in a wide one; their values are exact there.
      return b.convert(host.scalar(b, a.operand, hlo::is_float(t) ? DType::kF32 : DType::kI64), t);
  }
}

// The geometric mean of the three sizes is exact for two matrices, and near enough for batches and
// windows.
double six_pass_work(const hlo::Function& f, const hlo::Block& block) {
  double work = 0;
  for (const hlo::Instruction& i : block.body) {
    for (const auto& region : i.regions) work += six_pass_work(f, *region);
    if (i.op != hlo::Op::kDotGeneral && i.op != hlo::Op::kConvolution) continue;
    const auto size = [&](int32_t id) { return static_cast<double>(f.type(id).numel()); };
    for (const auto& [name, value] : i.attributes) {
      const auto* raw = std::get_if<hlo::Raw>(&value);
      if (std::string_view(name) == "precision_config" && raw &&
          raw->text.find("HIGHEST") != std::string::npos)
        work += std::sqrt(size(i.operands[0]) * size(i.operands[1]) * size(i.results[0]));
    }
  }
  return work;
}

}  // namespace

std::vector<hlo::Value> Instance::lower(Builder& b, ops::Host& host,
                                        std::span<const hlo::Value> inputs,
                                        ops::Target target) const {
  ops::ContextOptions options;
  options.precision = call.modes.precision;
  options.default_dtype = call.modes.default_dtype;
  if (call.out_type) options.out_type = *call.out_type;
  options.target = target;
  options.subgraphs = table;
  ops::Context x(b, host, options);

  bool has_double = is_double(call.modes.default_dtype);
  for (const Type* t : call.tensors) has_double |= is_double(t->dtype);

  auto value = [&](const ArgSpec& a) -> hlo::Value {
    if (a.tag == Tag::kTensor) return inputs[static_cast<size_t>(a.operand)];
    if (a.tag != Tag::kTensorScalar) return {};
    const hlo::Value v = tensor_scalar(b, host, a, scalar_operand_type(a, has_double));
    if (a.wrapped) x.mark_wrapped(v);
    return v;
  };
  auto scalar = [](const ArgSpec& a) {
    ops::Scalar s;
    if (a.tag == Tag::kKnownScalar) {
      s.kind = a.known.kind;
      s.known = a.known;
    } else {
      s.kind = a.kind;
      s.operand = a.operand;
    }
    return s;
  };
  std::vector<ops::Arg> args;
  args.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    const ArgSpec& a = call.args[i];
    switch (a.tag) {
      case Tag::kTensor:
      case Tag::kTensorScalar: args.emplace_back(value(a)); break;
      case Tag::kTensorList: {
        std::vector<hlo::Value> list;
        for (const ArgSpec& e : a.list) list.push_back(value(e));
        args.emplace_back(std::move(list));
        break;
      }
      case Tag::kScalar:
      case Tag::kKnownScalar: args.emplace_back(scalar(a)); break;
      case Tag::kScalarList: {
        std::vector<ops::Scalar> list;
        for (const ArgSpec& e : a.list) list.push_back(scalar(e));
        args.emplace_back(std::move(list));
        break;
      }
      case Tag::kAttr: args.emplace_back(a.attr); break;
      case Tag::kNone:
        // An absent tensor is an invalid value, any other absent argument an empty attribute.
        if (def->args[i] == ops::ArgKind::kOptTensor || def->args[i] == ops::ArgKind::kTensor) {
          args.emplace_back(hlo::Value());
        } else {
          args.emplace_back(ops::Attr());
        }
        break;
    }
  }
  std::vector<hlo::Value> results = def->lower(x, args);
  for (size_t i = 0; i < results.size(); ++i) {
    if (const Dims o = order(i, results); !o.empty()) results[i] = b.transpose(results[i], o);
  }
  return results;
}

Dims Instance::order(size_t i, const std::vector<hlo::Value>& results) const {
  if (!results[i].valid()) return {};
  const auto rank = static_cast<size_t>(results[i].rank());
  if (call.layouts.empty()) {
    if (def->rule(i) != ops::LayoutRule::kColumnMajor || rank < 2) return {};
    for (const hlo::Value& r : results) {
      if (i >= def->layouts.size() && r.valid() && r.rank() > results[i].rank()) return {};
    }
    Dims o(rank);
    for (size_t d = 0; d < rank; ++d) o[d] = static_cast<int64_t>(d);
    std::swap(o[rank - 2], o[rank - 1]);
    return o;
  }
  if (call.layouts.size() > 1 && i >= call.layouts.size()) return {};
  const Dims& o = call.layouts[call.layouts.size() > 1 ? i : 0];
  return o.size() == rank ? o : Dims();
}

std::string Instance::signature() const {
  std::string s = def->name + "(";
  for (size_t i = 0; i < call.tensors.size(); ++i)
    s += (i ? ", " : "") + hlo::to_string(*call.tensors[i]);
  return s + ")";
}

size_t InstanceTable::KeyHash::operator()(std::string_view k) const { return hash64(k); }

const Instance& InstanceTable::get(std::string_view key) {
  const auto op = static_cast<size_t>(op_of(key));
  if (op < latest_.size() && latest_[op] && keys_[latest_[op]->id] == key) [[likely]]
    return *latest_[op];
  if (op >= latest_.size()) latest_.resize(op + 1);
  const auto it = by_key_.find(key);
  latest_[op] = it != by_key_.end() ? it->second : &make(key);
  return *latest_[op];
}

const Instance& InstanceTable::make(std::string_view key) {
  const ops::Registry& registry = ops::Registry::instance();
  Instance inst;
  inst.table = this;
  inst.call = decode(key, registry);
  inst.def = &registry.all()[static_cast<size_t>(inst.call.op_id)];

  hlo::Function f;
  Builder b(f);
  std::vector<hlo::Value> inputs;
  for (const Type* t : inst.call.tensors) inputs.push_back(b.parameter(*t));
  InferHost host(inst);
  const std::vector<hlo::Value> results = inst.lower(b, host, inputs, target_);
  for (size_t i = 0; i < results.size(); ++i) {
    const hlo::Value& r = results[i];
    OutputSpec out;
    if (r.valid()) {
      out.base = intern(r.type());
      out.logical = out.base;
      if (const Dims order = inst.order(i, results); !order.empty()) {
        Type logical{r.dtype(), Dims(order.size())};
        out.strides.resize(order.size());
        int64_t stride = 1;
        for (size_t k = order.size(); k-- > 0;) {
          const auto d = static_cast<size_t>(order[k]);
          logical.dims[d] = r.dim(static_cast<int64_t>(k));
          out.strides[d] = stride;
          stride *= logical.dims[d];  // 0 after a size of 0, as TensorIterator
        }
        out.logical = intern(logical);
        out.row_major = false;
      }
    }
    inst.outputs.push_back(std::move(out));
  }
  inst.six_pass_work = six_pass_work(f, f.entry());
  TPU_CHECK(inst.six_pass_work == 0 || inst.def->takes_precision(), ErrorKind::kInternal,
            inst.def->name, " multiplies matrices and does not take their precision");
  inst.id = static_cast<uint32_t>(instances_.size());
  keys_.emplace_back(key);
  instances_.push_back(std::move(inst));
  by_key_.emplace(keys_.back(), &instances_.back());
  return instances_.back();
}

}  // namespace tpu::trace
