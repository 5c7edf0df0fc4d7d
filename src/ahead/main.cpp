// compile_ahead PLUGIN: compiles StableHLO files for devices that need not be here.
//
// The process that torch_tpu.aot starts, so that an abort of the compiler ends this one only. It
// sees no torch. Requests come on stdin, one a line, of fields separated by tabs:
//   compile <topology> <file> <output prefix> <options>    options as pjrt::parse_overrides takes
//   describe <topology>
// Each is answered on stdout by lines "key<TAB>value" and one of "ok", "error<TAB>text". A compile
// writes <prefix>.exe (serialized) and <prefix>.hlo.pb (the optimized program).
#include <signal.h>
#include <sys/prctl.h>

#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "base/strings.h"
#include "pjrt/topology.h"

namespace tpu::ahead {
namespace {

using pjrt::Topology;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  TPU_CHECK(in.good(), path, " cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  TPU_CHECK(out.flush().good(), path, " cannot be written");
}

// Text on one line: a backslash, n and t stand for themselves after a backslash.
std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out;
}

template <class V>
void answer(std::string_view key, const V& value) {
  std::cout << key << '\t' << value << '\n';
}

constexpr std::string_view kRemedy = "; pip install 'libtpu>=0.0.50' brings one that does";

std::shared_ptr<const pjrt::Api> load(const std::string& plugin) {
  try {
    return pjrt::Api::load(plugin);
  } catch (const Error& e) {
    throw Error(e.kind, cat("no compiler for TPUs: ", e.text, kRemedy));
  }
}

class Server {
 public:
  explicit Server(const std::string& plugin) : plugin_(plugin), api_(load(plugin)) {}

  void handle(const std::vector<std::string>& words) {
    if (words[0] == "compile" && words.size() == 5) {
      compile(words[1], words[2], words[3], words[4]);
    } else if (words[0] == "describe" && words.size() == 2) {
      describe(words[1]);
    } else {
      TPU_THROW(ErrorKind::kInvalid, "unknown request ", words[0]);
    }
  }

 private:
  const Topology& topology(const std::string& name) {
    auto it = topologies_.find(name);
    if (it != topologies_.end()) return it->second;
    try {
      return topologies_.emplace(name, Topology::create(api_, name)).first->second;
    } catch (const Error& e) {
      throw Error(e.kind, cat(plugin_, " does not compile for ", name, ": ", e.text, kRemedy));
    }
  }

  void describe(const std::string& name) {
    const Topology& t = topology(name);
    answer("platform_version", one_line(t.platform_version()));
    const auto devices = t.devices();
    answer("devices", devices.size());
    for (const auto& [key, value] : t.attributes())
      answer(cat("topology.", key), one_line(pjrt::to_string(value)));
    if (devices.empty()) return;
    answer("kind", devices[0].kind);
    for (const auto& [key, value] : devices[0].attributes)
      answer(cat("device.", key), one_line(pjrt::to_string(value)));
  }

  void compile(const std::string& name, const std::string& file, const std::string& prefix,
               const std::string& overrides) {
    pjrt::CompileOptions options;
    options.overrides = pjrt::parse_overrides(overrides);
    const pjrt::Compiled c = topology(name).compile(read_file(file), "mlir", options);
    answer("code_bytes", c.code_size_bytes());
    answer("fingerprint", one_line(c.fingerprint()));
    if (const auto m = c.memory_stats()) {
      answer("argument_bytes", m->argument_bytes);
      answer("output_bytes", m->output_bytes);
      answer("alias_bytes", m->alias_bytes);
      answer("temp_bytes", m->temporary_bytes);
      answer("peak_bytes", m->peak_bytes);
    }
    if (const auto cost = c.cost_analysis()) {
      for (const auto& [key, value] : *cost) answer(cat("cost.", key), value);
    }
    if (prefix == "-") return;
    if (const auto program = c.optimized_program()) {
      answer("program_format", program->format);
      write_file(prefix + ".hlo.pb", program->code);
    }
    write_file(prefix + ".exe", c.serialize());
  }

  std::string plugin_;
  std::shared_ptr<const pjrt::Api> api_;
  std::map<std::string, Topology, std::less<>> topologies_;
};

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) out.push_back(field);
  if (line.ends_with('\t')) out.emplace_back();
  return out;
}

int run(const char* plugin) {
  std::cout.precision(17);
  std::unique_ptr<Server> server;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (!server) server = std::make_unique<Server>(plugin);
      server->handle(fields(line));
      std::cout << "ok" << std::endl;
    } catch (const Error& e) {
      std::cout << "error\t" << one_line(e.text) << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tpu::ahead

int main(int argc, char** argv) {
  // Whoever waits for the answer is gone: a compile of minutes is for nobody.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 2) {
    std::cerr << "usage: compile_ahead PLUGIN < requests\n";
    return 2;
  }
  return tpu::ahead::run(argv[1]);
}
