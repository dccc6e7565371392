// Reverse-mode differentiation over a linear tape.
//
// The forward pass appends entries, backward() walks them from the last to the first. An entry is
// an operation or a mark. A mark computes nothing: it tells whoever placed it that the walk passed
// this point. Marks stand in the order of execution and hang on no tensor, so they fire exactly
// once per walk.
//
// "The walk" is a backward pass. Invariants. (1) An entry's gradient is complete when the walk
// reaches it: all its uses stand after it. (2) What a backward needs it captured: activations as
// tensors, parameters by address. An activation that nobody captured dies with its last Var. (3)
// Entries are dropped as the walk passes, and what they captured with them.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/backend.h"

namespace zl {

class Tape;

// Where a gradient goes: an entry of a tape, a parameter, or nowhere. Backward functions capture
// this instead of a Var when they do not need the value.
struct GradientTarget {
  Tape* tape = nullptr;
  int index = -1;
  Parameter* parameter = nullptr;
  explicit operator bool() const { return tape && (index >= 0 || parameter); }
};

// A value of the forward pass, or a parameter by its name. With a null tape nothing is recorded.
class Var {
 public:
  Var() = default;
  // A value that needs no gradient.
  static Var constant(Tape* tape, Tensor value) { return Var({tape}, std::move(value)); }
  // A parameter. Its value is looked up at each use. Throws std::invalid_argument if its unit is
  // not open.
  static Var parameter(Tape* tape, Parameter& parameter);

  // Throws std::invalid_argument if this is a parameter that is released at the moment.
  const Tensor& value() const;
  Tape* tape() const { return target_.tape; }
  const GradientTarget& target() const { return target_; }
  bool needs_gradient() const { return bool(target_); }

 private:
  friend class Tape;
  Var(GradientTarget target, Tensor value) : target_(target), value_(std::move(value)) {}
  GradientTarget target_;
  Parameter* parameter_ = nullptr;
  Tensor value_;  // undefined for a parameter
};

// A buffer that a backward function writes a gradient into: the first contribution sets it, later
// ones add.
struct GradientSlot {
  Tensor tensor;
  Write write;
};

class Tape {
 public:
  // Receives the complete gradient of the entry's value and owns it: it may be changed or passed
  // on.
  using Backward = std::function<void(Tensor grad)>;

  Tape() = default;
  Tape(const Tape&) = delete;  // Vars hold its address
  Tape& operator=(const Tape&) = delete;

  Var record(Tensor value, Backward backward);
  void mark(std::function<void()> on_backward);

  // Walks from the last entry to the first, starting with `seed` as the gradient of `from`. The
  // tape is empty afterwards, also if a backward function throws.
  void backward(const Var& from, Tensor seed);

  // The buffer of `shape` for a gradient of `target`, beside `like`. A parameter's buffer must
  // exist already.
  static GradientSlot slot(const GradientTarget& target, const Shape& shape, const Tensor& like);
  // Adds `grad` to what has so far reached `target`; the first contribution moves in. No target:
  // drops it.
  static void accumulate(const GradientTarget& target, Tensor grad);

  size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    Tensor grad;
    Backward backward;              // empty for a mark
    std::function<void()> on_mark;  // empty for an operation
  };
  static Tensor& gradient_of(const GradientTarget& target);  // what has so far reached an entry

  std::vector<Entry> entries_;
};

}  // namespace zl
