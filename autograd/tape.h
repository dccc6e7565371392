// Reverse-mode differentiation over a linear tape.
//
// The forward pass appends entries; the backward pass runs them from the last to the first and
// drops each one as it goes. An entry is an operation or a hook. A hook computes nothing: it runs
// when the backward pass reaches its position on the tape. Hooks depend on no tensor and keep the
// order of execution, so each runs exactly once per backward pass.
//
// Invariants. (1) The gradient of an entry is complete when the backward pass reaches it, because
// all its uses come later on the tape. (2) A backward function captures what it needs: activations
// as tensors, or how to compute them again; parameters by address. An activation that no function
// captured is freed with its last Var. (3) An entry and what it captured are freed before the next
// entry runs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/backend.h"

namespace zl {

// A named tensor that training updates. The stage decides when `data` and `grad` exist and in which
// memory. Tapes capture a parameter by its address and read `data` at each use. So a parameter that
// is freed after the forward pass can be allocated again before backward uses it.
struct Parameter {
  std::string name;
  Shape shape;
  // Initial values are normal with this mean and standard deviation; 0 makes them constant.
  double initial_mean = 0, initial_deviation = 0;
  Tensor data{};  // undefined while the unit is sharded
  Tensor grad{};  // ops add to it; undefined while there is no gradient buffer
  // false: frozen. Ops treat it as a constant; stages allocate its memory but never update it.
  bool requires_grad = true;
  // Whether ops may use it now: a parameter of a unit only while the unit runs.
  bool usable = true;
  // Called before each addition to `grad`, if it is set.
  std::function<void()> before_addition{};

  int64_t numel() const { return zl::numel(shape); }
};

class Tape;

// Where a gradient goes: an entry of a tape, a parameter, or nowhere. Backward functions capture
// this instead of a Var when they do not need the value.
struct GradientTarget {
  Tape* tape = nullptr;
  int index = -1;
  Parameter* parameter = nullptr;
  explicit operator bool() const { return tape && (index >= 0 || parameter); }
};

// A value as a backward function keeps it. Each call returns the tensor that was kept, the tensor
// of a parameter, or a new tensor: the value, computed again.
using Kept = std::function<Tensor()>;

// A value of the forward pass, or a parameter by its name. With a null tape nothing is recorded.
class Var {
 public:
  Var() = default;
  // A value that needs no gradient.
  static Var constant(Tape* tape, Tensor value) { return Var({tape}, std::move(value)); }
  // A parameter. Its value is looked up at each use. Throws std::invalid_argument outside
  // its unit.
  static Var parameter(Tape* tape, Parameter& parameter);

  // Throws std::invalid_argument if this is a parameter outside its unit, or without data.
  const Tensor& value() const;
  // What a backward function captures to have this value later, with the same bits.
  Kept keep() const {
    return again_ ? again_ : [v = *this] { return v.value(); };
  }
  Tape* tape() const { return target_.tape; }
  const GradientTarget& target() const { return target_; }
  bool needs_gradient() const { return bool(target_); }

 private:
  friend class Tape;
  Var(GradientTarget target, Tensor value) : target_(target), value_(std::move(value)) {}
  GradientTarget target_;
  Parameter* parameter_ = nullptr;
  Tensor value_;  // undefined for a parameter
  Kept again_;    // computes the value again; empty: backward functions keep the value
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

  // `again` computes the value once more: the same bits, from what `backward` keeps anyway.
  // Backward functions that need the value then keep `again` in its place. Empty: they keep the
  // value. The Var holds `again` too, and with it what that captured.
  Var record(Tensor value, Backward backward, Kept again = {});
  // Appends a hook that runs when the backward pass reaches this position.
  void hook(std::function<void()> on_backward);

  // The backward pass: from the last entry to the first, with `seed` as the gradient of `from`.
  // The tape is empty afterwards, also if a backward function throws. Throws std::invalid_argument
  // if `from` is not on this tape.
  void backward(const Var& from, Tensor seed);

  // The buffer of `shape` for a gradient of `target`, beside `like`. A parameter's buffer must
  // exist already. Throws std::invalid_argument without a target.
  static GradientSlot slot(const GradientTarget& target, const Shape& shape, const Tensor& like);
  // Adds `grad` to what has so far reached `target`; the first contribution moves in. No target:
  // drops it.
  static void accumulate(const GradientTarget& target, Tensor grad);

  size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    Tensor grad;
    Backward backward;           // empty for a hook
    std::function<void()> hook;  // empty for an operation
  };
  static Tensor& gradient_of(const GradientTarget& target);  // what has so far reached an entry

  std::vector<Entry> entries_;
};

}  // namespace zl
