#include "package/package.h"

#include <algorithm>

#include "package/json.h"

namespace tpu::package {
namespace {

TensorType type_of(const Json& j, std::string_view where) {
  TensorType t{&dtype_by_torch_name(j["dtype"].string(), where), {}};
  for (const Json& d : j["shape"].array()) t.dims.push_back(d.integer());
  t.size_bytes();  // throws for sizes that are none
  return t;
}

Argument::Kind argument_kind(std::string_view text) {
  if (text == "input") return Argument::Kind::kInput;
  if (text == "generator") return Argument::Kind::kGenerator;
  TPU_CHECK(text == "parameter" || text == "buffer" || text == "constant", ErrorKind::kValue,
            "the package has an argument of the unknown kind ", text);
  return Argument::Kind::kWeight;
}

ErrorKind error_kind(std::string_view text) {
  using enum ErrorKind;
  for (const ErrorKind k :
       {kInvalid, kIndex, kType, kValue, kUnsupported, kMissingOp, kLinAlg, kMemory, kDevice}) {
    if (to_string(k) == text) return k;
  }
  return kInvalid;
}

}  // namespace

Package::Package(const std::string& path) : zip_(path) {
  TPU_CHECK(zip_.contains("package.json") && zip_.contains("program.mlir"), ErrorKind::kValue, path,
            " is no package of torch_tpu: a zip archive without package.json and program.mlir");
  try {
    read_signature();
    read_weights();
  } catch (const Error& e) {
    throw Error(e.kind, cat(path, ": ", e.text));
  }
}

void Package::read_signature() {
  const Json j = Json::parse(zip_.read("package.json"), "package.json");
  const int64_t format = j["format"].integer();
  TPU_CHECK(format >= 1 && format <= kFormat, ErrorKind::kValue, "the package has format ", format,
            ", this program reads up to ", kFormat, "; use the torch_tpu that made it");
  name_ = j["name"].string();
  platform_ = j["platform"].string();
  if (!j["topology"].is_null()) topology_ = j["topology"].string();
  for (const Json& a : j["arguments"].array()) {
    const std::string& name = a["name"].string();
    arguments_.push_back({name, argument_kind(a["kind"].string()), type_of(a, name),
                          static_cast<int>(a["updated_by"].integer())});
  }
  for (const Json& r : j["results"].array()) {
    const std::string& name = r["name"].string();
    results_.push_back({name, r["kind"].string() == "output", type_of(r, name)});
  }
  for (const Json& a : j["assertions"].array())
    assertions_.push_back({error_kind(a["kind"].string()), a["text"].string()});
  std::vector<bool> taken(results_.size());
  for (const Argument& a : arguments_) {
    if (a.updated_by < 0) continue;
    const auto r = static_cast<size_t>(a.updated_by);
    TPU_CHECK(
        r < results_.size() && !results_[r].is_output && !taken[r] && results_[r].type == a.type,
        ErrorKind::kValue, "argument ", a.name, " cannot be updated by result ", r);
    taken[r] = true;
  }
}

// A length of 8 bytes, a JSON object from names to type and place, then the bytes.
void Package::read_weights() {
  const auto is_weight = [](const Argument& a) { return a.kind == Argument::Kind::kWeight; };
  if (std::ranges::none_of(arguments_, is_weight)) return;
  const std::string_view bytes = zip_.read("weights.safetensors");
  uint64_t size = 0;
  for (size_t i = 0; i < 8 && i < bytes.size(); ++i)
    size |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  TPU_CHECK(bytes.size() >= 8 && size <= bytes.size() - 8, ErrorKind::kValue,
            "weights.safetensors has no header");
  const Json header = Json::parse(bytes.substr(8, size), "the header of weights.safetensors");
  const std::string_view data = bytes.substr(8 + size);
  for (const Argument& a : arguments_) {
    if (!is_weight(a)) continue;
    const Json* about = header.find(a.name);
    TPU_CHECK(about, ErrorKind::kValue, "weights.safetensors has no tensor ", a.name);
    TensorType type{&dtype_by_safetensors_name((*about)["dtype"].string(), a.name), {}};
    for (const Json& d : (*about)["shape"].array()) type.dims.push_back(d.integer());
    TPU_CHECK(type == a.type, ErrorKind::kValue, "the weight ", a.name, " is ", to_string(type),
              ", the program takes ", to_string(a.type));
    const auto& place = (*about)["data_offsets"].array();
    TPU_CHECK(place.size() == 2, ErrorKind::kValue, "the weight ", a.name, " has no place");
    const auto begin = static_cast<uint64_t>(place[0].integer()),
               end = static_cast<uint64_t>(place[1].integer());
    TPU_CHECK(begin <= end && end <= data.size() && end - begin == type.size_bytes(),
              ErrorKind::kValue, "the weight ", a.name, " lies outside of the file");
    weights_.emplace(a.name, data.substr(begin, end - begin));
  }
}

std::string_view Package::executable() {
  return zip_.contains("executable") ? zip_.read("executable") : std::string_view();
}

std::string_view Package::weight(const Argument& a) const {
  const auto it = weights_.find(a.name);
  TPU_CHECK(it != weights_.end(), ErrorKind::kInternal, a.name, " is no weight");
  return it->second;
}

}  // namespace tpu::package
