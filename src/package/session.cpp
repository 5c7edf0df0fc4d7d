#include "package/session.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tpu::package {
namespace {

std::shared_ptr<const pjrt::Api> load_plugin(const std::string& path) {
  TPU_CHECK(!path.empty(), ErrorKind::kDevice,
            "no PJRT plugin is named; give --plugin FILE or set TORCH_TPU_PJRT_PLUGIN "
            "(python -m torch_tpu.run finds the installed one)");
  return pjrt::Api::load(path);
}

std::string names_of(const std::vector<Argument>& arguments) {
  std::string text;
  for (const Argument& a : arguments) {
    if (a.kind == Argument::Kind::kInput)
      text += cat(text.empty() ? "" : ", ", a.name, " ", to_string(a.type));
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

Session::Session(Package package, const std::string& plugin, uint64_t seed)
    : package_(std::move(package)), client_(pjrt::Client::create(load_plugin(plugin))) {
  const std::string& platform = client_->platform_name();
  const std::string made_for =
      package_.topology().empty() ? package_.platform() : cat("the TPU ", package_.topology());
  TPU_CHECK(platform == package_.platform(), ErrorKind::kValue, package_.path(), " was made for ",
            made_for, ", the plugin ", plugin, " is for ", platform, "; export it for that device");
  load();
  for (const Argument& a : package_.arguments()) {
    switch (a.kind) {
      case Argument::Kind::kInput: arguments_.emplace_back(); break;
      case Argument::Kind::kWeight: arguments_.push_back(upload(a.type, package_.weight(a))); break;
      case Argument::Kind::kGenerator: {
        const uint64_t state[2] = {seed, 0};
        arguments_.push_back(upload(a.type, {reinterpret_cast<const char*>(state), sizeof state}));
      }
    }
  }
}

void Session::load() {
  const std::string_view stored = package_.executable();
  if (stored.empty()) {
    why_compiled_ = "the package holds no executable";
  } else {
    try {
      executable_ = client_->deserialize(stored);
    } catch (const Error& e) {
      why_compiled_ = e.text;
    }
  }
  if (!why_compiled_.empty()) {
    pjrt::CompileOptions options = client_->program_options();
    options.portable = true;
    executable_ = client_->compile(package_.program(), "mlir", options);
  }
  const auto made = executable_.output_types();
  const auto& wanted = package_.results();
  bool same = made.size() == wanted.size() + (package_.assertions().empty() ? 0 : 1);
  for (size_t i = 0; same && i < wanted.size(); ++i)
    same = made[i].element_type == wanted[i].type.dtype->element &&
           made[i].dims == wanted[i].type.dims;
  TPU_CHECK(same, ErrorKind::kValue, package_.path(),
            ": the program gives other results than package.json says; export it again");
}

pjrt::Buffer Session::upload(const TensorType& type, std::string_view data) const {
  pjrt::HostArray array{.element_type = type.dtype->element, .dims = type.dims};
  array.data = data.data();
  return client_->buffer_from_host(array, pjrt::HostSemantics::kCopyDuringCall).buffer;
}

void Session::set_inputs(ZipReader& npz) {
  const auto& all = package_.arguments();
  std::vector<std::string> known;
  for (size_t i = 0; i < all.size(); ++i) {
    const Argument& a = all[i];
    if (a.kind != Argument::Kind::kInput) continue;
    const std::string member = a.name + ".npy";
    TPU_CHECK(npz.contains(member), ErrorKind::kValue, npz.path(), " has no array ", a.name,
              "; the package takes ", names_of(all));
    const std::string where = cat(a.name, " in ", npz.path());
    const NpyArray array = parse_npy(npz.read(member), where);
    arguments_[i] = upload(a.type, elements_of(array, a.type, where));
    known.push_back(member);
  }
  for (const ZipReader::Member& m : npz.members()) {
    TPU_CHECK(std::ranges::find(known, m.name) != known.end(), ErrorKind::kValue, npz.path(),
              " has an array ", m.name.substr(0, m.name.rfind(".npy")),
              ", which is no input; the package takes ", names_of(all));
  }
}

void Session::run() {
  const auto& all = package_.arguments();
  std::vector<PJRT_Buffer*> args;
  // An input stays valid for the next run; what the package itself holds may be overwritten.
  std::vector<int64_t> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    args.push_back(arguments_[i].handle());
    if (all[i].updated_by < 0 || all[i].kind == Argument::Kind::kInput)
      kept.push_back(static_cast<int64_t>(i));
  }
  std::vector<PJRT_Buffer*> outputs(executable_.num_outputs(), nullptr);
  pjrt::Launch launch;
  launch.args = args;
  launch.outputs = outputs;
  launch.non_donatable = kept;
  if (executable_.devices().empty()) launch.device = client_->devices().front().handle();
  executable_.execute(launch);
  results_.clear();
  for (PJRT_Buffer* b : outputs) results_.emplace_back(client_->api(), b);
  for (const pjrt::Buffer& b : results_) b.await();
  if (!package_.assertions().empty()) {
    check_assertions(results_.back());
    results_.pop_back();
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].updated_by >= 0 && all[i].kind != Argument::Kind::kInput)
      arguments_[i] = std::move(results_[static_cast<size_t>(all[i].updated_by)]);
  }
}

void Session::check_assertions(const pjrt::Buffer& flags) const {
  const auto& all = package_.assertions();
  std::vector<int64_t> values(2 * all.size());
  const std::string bytes = download(flags, values.size() * sizeof values[0]);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (values[2 * i] == 0) continue;
    std::string text = all[i].text;
    if (const size_t at = text.find("{}"); at != std::string::npos)
      text.replace(at, 2, std::to_string(values[2 * i + 1]));
    throw Error(all[i].kind, std::move(text));
  }
}

std::string Session::download(const pjrt::Buffer& b, size_t size_bytes) const {
  std::string out(size_bytes, '\0');
  b.to_host(out.data(), out.size()).await();
  return out;
}

Arrays Session::results() const {
  Arrays out;
  const auto& all = package_.arguments();
  for (size_t r = 0; r < package_.results().size(); ++r) {
    const Result& about = package_.results()[r];
    const pjrt::Buffer* b = &results_[r];
    std::string name = about.name;
    if (!about.is_output) {
      const auto a = std::ranges::find(all, static_cast<int>(r), &Argument::updated_by);
      if (a == all.end() || a->kind == Argument::Kind::kGenerator) continue;
      if (a->kind != Argument::Kind::kInput) b = &arguments_[static_cast<size_t>(a - all.begin())];
      name = cat("updated.", a->name);
    }
    out.emplace_back(name, Array{about.type, download(*b, about.type.size_bytes())});
  }
  return out;
}

}  // namespace tpu::package
