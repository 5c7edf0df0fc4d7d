#include "pjrt/program.h"

namespace tpu::pjrt {

void check_program(std::string_view program, std::string_view format) {
  if (format != "mlir") return;
  constexpr std::string_view kTensor = "tensor<";
  for (size_t at = program.find('?'); at != std::string_view::npos;
       at = program.find('?', at + 1)) {
    const size_t begin = program.rfind(kTensor, at);
    if (begin == std::string_view::npos) continue;
    const std::string_view shape = program.substr(begin, at - begin);
    // Between "tensor<" and the mark only sizes may stand; anything else is another use of the
    // mark.
    if (shape.find_first_not_of("0123456789x?", kTensor.size()) != std::string_view::npos) continue;
    const size_t line_end = program.find('\n', at);
    const std::string_view rest = program.substr(at, line_end - at);
    const size_t comma = rest.find_first_of(",>");
    if (comma != std::string_view::npos && rest[comma] == ',' &&
        trim(rest.substr(comma + 1)).starts_with('#')) {
      continue;  // an encoding such as #stablehlo.bounds<16> follows
    }
    TPU_THROW(ErrorKind::kUnsupported, "the program has an unbounded dynamic dimension (",
              program.substr(begin, at - begin + comma + 1),
              "); give the dimension a size or a bound");
  }
}

PJRT_Program make_program(std::string_view program, std::string_view format) {
  PJRT_Program out{};
  out.struct_size = PJRT_Program_STRUCT_SIZE;
  out.code = const_cast<char*>(program.data());  // read only when compiling
  out.code_size = program.size();
  out.format = format.data();
  out.format_size = format.size();
  return out;
}

}  // namespace tpu::pjrt
