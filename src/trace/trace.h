// A program that is recorded to be compiled, not run: for compiling ahead, export, torch.compile.
//
// A trace is a window of its own, filled by the same recorder. Its parameters are placeholders, and
// ready values that ops meet (constants of the user's code). While it is open a read of one of its
// values is an error; when it ends, what is left of them turns into failed values. Random ops take
// offsets from 0: the generator's state is an argument of the program. Guarded by the recorder's
// lock; whose ops go into it is the runtime's business.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trace/graph.h"
#include "trace/lower.h"
#include "trace/subgraph.h"

namespace tpu::trace {

class Trace {
 public:
  // A program to be compiled.
  Trace(int32_t device, ops::Target target)
      : window_(device), own_(std::make_unique<InstanceTable>()), instances_(*own_) {
    own_->set_target(target);
  }
  // One that will be recorded again, in windows whose instances are in `table`.
  Trace(int32_t device, InstanceTable& table) : window_(device), instances_(table) {}

  // Whether it becomes a program of its own, which has one generator, and not a graph.
  bool is_program() const { return own_ != nullptr; }
  Window& window() { return window_; }
  InstanceTable& instances() { return instances_; }

  // A new parameter of the program.
  ValuePtr placeholder(const Type* type);
  // For the next draws from that state: its number among those drawn from, in place of the seed,
  // and the offset relative to what it was at the program's start.
  RandomState take_random(const std::shared_ptr<RandomState>& source, int64_t draws);

  // How much was drawn from that state so far.
  int64_t drawn(const std::shared_ptr<RandomState>& source) const;

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
  struct Embedded {
    ValuePtr placeholder;
    std::string_view bytes;  // of its elements, row-major
  };
  // Outputs, then updates. Values may be parameters themselves. Placeholders that are `embedded`
  // become constants and are no parameters; updates of such are refused.
  Program finish(const std::vector<ValuePtr>& outputs, const std::vector<Update>& updates,
                 bool assertions, const std::vector<Embedded>& embedded = {});
  // What has been recorded, as a graph with these results; the n-th placeholder is its n-th
  // argument.
  Graph graph(const std::vector<ValuePtr>& results);
  // The same to be run by an op of the program around this one: its number in the table, and the
  // values that the traced code brought along, which are arguments behind the placeholders. It may
  // draw from that state only.
  struct Inner {
    int64_t number;
    std::vector<ValuePtr> captured;
  };
  Inner subgraph(const std::vector<ValuePtr>& results, const std::shared_ptr<RandomState>& source);
  // Ends it: pending values fail, tensors with a value that were written get it back.
  void close();

 private:
  Window window_;
  std::unique_ptr<InstanceTable> own_;
  InstanceTable& instances_;
  std::vector<ValuePtr> placeholders_;
  std::vector<RandomSource> sources_;
};

// Paths of modules ("layers.0.mlp") by number; 0 is no path. Numbers are kept for ever.
int32_t intern_path(std::string_view path);
std::string path_text(int32_t number);

// The user's line, "train.py:12 in step": what a compiled graph calls its nodes, else the frame;
// empty where there is no Python.
std::string line_of(const Location& l);

}  // namespace tpu::trace
