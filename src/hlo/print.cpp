#include "hlo/print.h"

#include <bit>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace tpu::hlo {
namespace {

void append_quoted(std::string& out, std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  out += '"';
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7f) {
      out += '\\';
      out += kDigits[u >> 4];
      out += kDigits[u & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_int(std::string& out, int64_t v) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, v).ptr);
}

class Printer {
 public:
  Printer(const Function& f, const PrintOptions& options) : f_(f), options_(options) {}

  std::string module() {
    const Block& entry = f_.entry();
    out_.reserve(1024 + entry.body.size() * 192);
    number_results(entry);
    out_ += "\"builtin.module\"() <{sym_name = ";
    append_quoted(out_, options_.module_name);
    out_ += "}> ({\n  \"func.func\"() <{";
    argument_attributes(entry.arguments.size());
    out_ += "function_type = ";
    signature(entry.arguments, entry.returns);
    out_ += ", sym_name = ";
    append_quoted(out_, f_.name);
    out_ += ", sym_visibility = \"public\"}> ({\n";
    block(entry, "func.return", 2);
    out_ += "  }) : () -> ()\n}) {mhlo.num_partitions = ";
    append_int(out_, options_.num_partitions);
    out_ += " : i32, mhlo.num_replicas = ";
    append_int(out_, options_.num_replicas);
    out_ += " : i32} : () -> ()\n";
    return std::move(out_);
  }

 private:
  // A value that is one of several results is written %first#index.
  struct Name {
    int32_t first = -1;
    int32_t index = -1;
  };

  void number_results(const Block& b) {
    for (const Instruction& i : b.body) {
      if (i.results.size() > 1) {
        if (names_.empty()) names_.resize(static_cast<size_t>(f_.value_count()));
        for (size_t k = 0; k < i.results.size(); ++k) {
          names_[static_cast<size_t>(i.results[k])] = {i.results[0], static_cast<int32_t>(k)};
        }
      }
      for (const auto& r : i.regions) number_results(*r);
    }
  }

  void value(int32_t id) {
    out_ += '%';
    if (!names_.empty()) {
      const Name& n = names_[static_cast<size_t>(id)];
      if (n.index >= 0) {
        append_int(out_, n.first);
        out_ += '#';
        append_int(out_, n.index);
        return;
      }
    }
    append_int(out_, id);
  }

  template <class List, class Each>
  void list(const List& items, const Each& each) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ", ";
      first = false;
      each(item);
    }
  }

  void types(const std::vector<int32_t>& ids, bool always_in_parentheses) {
    const bool bare = ids.size() == 1 && !always_in_parentheses;
    if (!bare) out_ += '(';
    list(ids, [&](int32_t id) { append_mlir(out_, f_.type(id)); });
    if (!bare) out_ += ')';
  }

  void signature(const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
    types(from, true);
    out_ += " -> ";
    types(to, false);
  }

  void argument_attributes(size_t count) {
    const auto& texts = f_.argument_attributes;
    if (texts.empty()) return;
    TPU_CHECK(texts.size() == count, ErrorKind::kInternal, "function ", f_.name, " has ", count,
              " arguments and attributes for ", texts.size());
    out_ += "arg_attrs = [";
    list(texts, [&](const std::string& text) {
      out_ += '{';
      out_ += text;
      out_ += '}';
    });
    out_ += "], ";
  }

  void attribute(const Attribute& a) {
    if (const auto* raw = std::get_if<Raw>(&a)) {
      out_ += raw->text;
    } else if (const auto* ints = std::get_if<DenseInts>(&a)) {
      out_ += ints->values.empty() ? "array<i64" : "array<i64: ";
      list(ints->values, [&](int64_t v) { append_int(out_, v); });
      out_ += '>';
    } else if (const auto* i = std::get_if<int64_t>(&a)) {
      append_int(out_, *i);
      out_ += " : i64";
    } else if (const auto* flag = std::get_if<bool>(&a)) {
      out_ += *flag ? "true" : "false";
    } else if (const auto* text = std::get_if<std::string>(&a)) {
      append_quoted(out_, *text);
    } else {
      // A pattern in hexadecimal is exact for every double, NaN and inf included.
      const auto bits = std::bit_cast<uint64_t>(std::get<double>(a));
      char digits[16];
      const std::string_view hex(digits, std::to_chars(digits, digits + 16, bits, 16).ptr);
      out_ += "0x";
      out_.append(16 - hex.size(), '0');
      out_ += hex;
      out_ += " : f64";
    }
  }

  // Attributes of the op's own are properties; names with a dialect prefix (mhlo.sharding) are not.
  void attributes(const Instruction& i, bool own) {
    bool first = true;
    for (const auto& [name, value] : i.attributes) {
      if ((std::string_view(name).find('.') == std::string_view::npos) != own) continue;
      out_ += first ? (own ? " <{" : " {") : ", ";
      first = false;
      out_ += name;
      out_ += " = ";
      attribute(value);
    }
    if (!first) out_ += own ? "}>" : "}";
  }

  void indent(int depth) { out_.append(static_cast<size_t>(depth) * 2, ' '); }

  void block(const Block& b, std::string_view terminator, int depth) {
    if (!b.arguments.empty()) {
      indent(depth - 1);
      out_ += "^bb0(";
      list(b.arguments, [&](int32_t id) {
        value(id);
        out_ += ": ";
        append_mlir(out_, f_.type(id));
      });
      out_ += "):\n";
    }
    for (const Instruction& i : b.body) instruction(i, depth);
    indent(depth);
    out_ += '"';
    out_ += terminator;
    out_ += "\"(";
    list(b.returns, [&](int32_t id) { value(id); });
    out_ += ") : ";
    types(b.returns, true);
    out_ += " -> ()\n";
  }

  void instruction(const Instruction& i, int depth) {
    indent(depth);
    if (!i.results.empty()) {
      out_ += '%';
      append_int(out_, i.results[0]);
      if (i.results.size() > 1) {
        out_ += ':';
        append_int(out_, static_cast<int64_t>(i.results.size()));
      }
      out_ += " = ";
    }
    out_ += '"';
    out_ += mlir_name(i.op);
    out_ += "\"(";
    list(i.operands, [&](int32_t id) { value(id); });
    out_ += ')';
    attributes(i, true);
    if (!i.regions.empty()) {
      out_ += " ({\n";
      for (size_t r = 0; r < i.regions.size(); ++r) {
        if (r > 0) {
          indent(depth);
          out_ += "}, {\n";
        }
        block(*i.regions[r], "stablehlo.return", depth + 1);
      }
      indent(depth);
      out_ += "})";
    }
    attributes(i, false);
    out_ += " : ";
    signature(i.operands, i.results);
    if (options_.locations && i.location >= 0) {
      out_ += " loc(";
      append_quoted(out_, f_.locations()[static_cast<size_t>(i.location)]);
      out_ += ')';
    }
    out_ += '\n';
  }

  const Function& f_;
  const PrintOptions& options_;
  std::vector<Name> names_;  // empty when no instruction has several results
  std::string out_;
};

}  // namespace

std::string print(const Function& f, const PrintOptions& options) {
  return Printer(f, options).module();
}

}  // namespace tpu::hlo
