// A program that is recorded to be compiled, not run: for compiling ahead, export, torch.compile.
//
// A trace is a window of its own, filled by the same recorder. Its parameters are placeholders, and
// ready values that ops meet (constants of the user's code). While it is open a read of one of its
// values is an error; when it ends, what is left of them turns into failed values. Random ops take
// offsets from 0: the generator's state is an argument of the program. Guarded by the recorder's
// lock; whose ops go into it is the runtime's business.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trace/lower.h"

namespace tpu::trace {

class Trace {
 public:
  Trace(int32_t device, ops::Target target) : window_(device) { instances_.set_target(target); }

  Window& window() { return window_; }
  InstanceTable& instances() { return instances_; }

  // A new parameter of the program.
  ValuePtr placeholder(const Type* type);
  // The state for the next draws, relative to that at the program's start.
  RandomState take_random(int64_t draws);

  struct Update {
    ValuePtr placeholder, value;  // of one type: the value goes where the placeholder was
  };
  struct Program {
    Lowered lowered;
    std::vector<ValuePtr> parameters;  // in the order of the arguments; the generator's is last
    std::vector<int32_t> aliases;      // one a parameter: the output in its memory, or -1
    size_t output_count = 0;           // without updates, generator state and assertions
    bool random = false;
  };
  // Outputs, then updates. Values may be parameters themselves.
  Program finish(const std::vector<ValuePtr>& outputs, const std::vector<Update>& updates,
                 bool assertions);
  // Ends it: pending values fail, tensors with a value that were written get it back.
  void close();

 private:
  Window window_;
  InstanceTable instances_;
  uint64_t draws_ = 0;
};

// Paths of modules ("layers.0.mlp") by number; 0 is no path. Numbers are kept for ever.
int32_t intern_path(std::string_view path);
std::string path_text(int32_t number);

}  // namespace tpu::trace
