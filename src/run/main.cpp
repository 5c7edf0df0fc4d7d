// torch_tpu_run: serves a package (docs/guide/export.md) without Python and without torch.
//
//   torch_tpu_run [options] MODEL.tpt2 INPUT.npz [OUTPUT.npz]
//
// Exit code 0, or 1 and one line on stderr, or 2 for a wrong command line.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "base/settings.h"
#include "package/session.h"

namespace tpu::run {
namespace {

using package::Argument;
using package::Arrays;
using package::Package;
using package::Session;
using package::to_string;

constexpr std::string_view kUsage =
    "usage: torch_tpu_run [--plugin FILE] [--seed N] [--repeat N] MODEL.tpt2 INPUT.npz "
    "[OUTPUT.npz]\n"
    "       torch_tpu_run --info MODEL.tpt2\n"
    "\n"
    "  --plugin FILE  PJRT plugin to run on; else TORCH_TPU_PJRT_PLUGIN\n"
    "  --seed N       of random numbers; 0 unless given\n"
    "  --repeat N     run so often and tell the median time\n"
    "  --info         only tell what the package takes and gives; needs no plugin\n"
    "\n"
    "INPUT.npz is what numpy.savez writes, an array for each input; OUTPUT.npz gets the results.\n";

struct Options {
  std::string plugin = settings().get_string("plugin");
  uint64_t seed = 0;
  uint64_t repeat = 1;
  bool info = false, help = false;
  std::vector<std::string> files;
};

std::optional<uint64_t> number(std::string_view text) {
  uint64_t v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  return v;
}

// Nothing for a command line that is none.
std::optional<Options> parse(const std::vector<std::string>& words) {
  Options o;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_value = word == "--plugin" || word == "--seed" || word == "--repeat";
    if (word == "--info") {
      o.info = true;
    } else if (word == "--help" || word == "-h") {
      o.help = true;
    } else if (has_value && i + 1 < words.size()) {
      const std::string& value = words[++i];
      if (word == "--plugin") {
        o.plugin = value;
        continue;
      }
      const auto n = number(value);
      if (!n || (word == "--repeat" && *n == 0)) return std::nullopt;
      (word == "--seed" ? o.seed : o.repeat) = *n;
    } else if (word.starts_with("--")) {
      return std::nullopt;
    } else {
      o.files.push_back(word);
    }
  }
  const size_t n = o.files.size();
  if (!o.help && (o.info ? n != 1 : n < 2 || n > 3)) return std::nullopt;
  return o;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

std::string rounded(double v) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v, std::chars_format::fixed, 2).ptr};
}

void tell(Package p) {
  std::cout << p.name() << ", for "
            << (p.topology().empty() ? p.platform() : "the TPU " + p.topology())
            << (p.executable().empty() ? ", without" : ", with") << " an executable\n";
  size_t weights = 0, bytes = 0;
  for (const Argument& a : p.arguments()) {
    if (a.kind == Argument::Kind::kInput)
      std::cout << "input   " << a.name << " " << to_string(a.type) << "\n";
    if (a.kind == Argument::Kind::kWeight) ++weights, bytes += a.type.size_bytes();
  }
  for (const package::Result& r : p.results()) {
    if (r.is_output) std::cout << "output  " << r.name << " " << to_string(r.type) << "\n";
  }
  std::cout << "weights " << weights << " tensors, " << format_bytes(bytes) << "\n";
}

void serve(const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  Session session(Package(o.files[0]), o.plugin, o.seed);
  if (!session.why_compiled().empty())
    std::cerr << "torch_tpu_run: compiled: " << session.why_compiled() << "\n";
  package::ZipReader inputs(o.files[1]);
  session.set_inputs(inputs);
  const double loading = milliseconds_since(start);
  std::vector<double> times;
  for (uint64_t i = 0; i < o.repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    session.run();
    times.push_back(milliseconds_since(begin));
  }
  std::ranges::sort(times);
  const Arrays results = session.results();
  for (const auto& [name, array] : results)
    std::cout << name << " " << to_string(array.type) << "\n";
  std::cout << "loaded in " << rounded(loading) << " ms, ran in "
            << rounded(times[times.size() / 2]) << " ms"
            << (times.size() > 1 ? cat(" (median of ", times.size(), ")") : "") << "\n";
  if (o.files.size() < 3) return;
  package::ZipWriter out(o.files[2]);
  for (const auto& [name, array] : results)
    out.add(name + ".npy", package::npy(array.type, array.data));
  out.finish();
}

int main(const std::vector<std::string>& words) {
  try {
    const auto o = parse(words);
    if (!o) {
      std::cerr << kUsage;
      return 2;
    }
    if (o->help) {
      std::cout << kUsage;
    } else if (o->info) {
      tell(Package(o->files[0]));
    } else {
      serve(*o);
    }
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "torch_tpu_run: " << e.what() << "\n";
    return 1;
  }
}

}  // namespace
}  // namespace tpu::run

int main(int argc, char** argv) { return tpu::run::main({argv + 1, argv + argc}); }
