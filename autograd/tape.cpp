#include "autograd/tape.h"

#include "tensor/kernels.h"

namespace zl {
namespace {

void require_usable(const Parameter& p) {
  if (!p.usable)
    refuse("parameter '", p.name,
           "' is used outside its unit; put parameters that several units share into root");
}

}  // namespace

Var Var::parameter(Tape* tape, Parameter& p) {
  require_usable(p);
  Var v({tape, -1, p.requires_grad ? &p : nullptr}, {});
  v.parameter_ = &p;
  return v;
}

const Tensor& Var::value() const {
  if (!parameter_) return value_;
  require_usable(*parameter_);
  if (!parameter_->data.defined())
    refuse("parameter '", parameter_->name,
           "' has no memory: it is in none of the model's units, or no stage has allocated them "
           "yet");
  return parameter_->data;
}

Var Tape::record(Tensor value, Backward backward, Kept again) {
  entries_.push_back({.grad = {}, .backward = std::move(backward), .hook = {}});
  Var v({this, int(entries_.size()) - 1}, std::move(value));
  v.again_ = std::move(again);
  return v;
}

void Tape::hook(std::function<void()> on_backward) {
  entries_.push_back({.grad = {}, .backward = {}, .hook = std::move(on_backward)});
}

void Tape::backward(const Var& from, Tensor seed) {
  if (from.tape() != this || !from.needs_gradient() || from.target().index >= int(entries_.size()))
    refuse("backward: this value is not on this tape; a backward pass uses a tape up");
  if (seed.numel() != from.value().numel())
    refuse("backward: the seed ", to_string(seed.shape()), " must have the shape ",
           to_string(from.value().shape()));
  struct Clear {
    std::vector<Entry>& entries;
    ~Clear() {
      while (!entries.empty()) entries.pop_back();
    }  // last to first, as the backward pass would
  } clear{entries_};
  accumulate(from.target(), std::move(seed));
  while (!entries_.empty()) {
    // The entry leaves the tape before it runs, so that nothing it captured outlives it.
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    if (entry.hook) entry.hook();
    if (entry.backward && entry.grad.defined()) entry.backward(std::move(entry.grad));
  }
}

namespace {
// Before each addition to p.grad.
void begin_addition(const Parameter& p) {
  if (!p.grad.defined())
    refuse("parameter '", p.name,
           "' has no gradient buffer: its stage must allocate one before the backward pass");
  if (p.before_addition) p.before_addition();
}
}  // namespace

Tensor& Tape::gradient_of(const GradientTarget& target) {
  if (target.index >= int(target.tape->entries_.size()))
    refuse("backward: an input of this value is no longer on its tape");
  return target.tape->entries_[size_t(target.index)].grad;
}

GradientSlot Tape::slot(const GradientTarget& target, const Shape& shape, const Tensor& beside) {
  if (!target)
    refuse(
        "slot: this value needs no gradient; test needs_gradient() before asking for its buffer");
  if (target.parameter) {
    begin_addition(*target.parameter);
    return {target.parameter->grad, Write::add};
  }
  Tensor& grad = gradient_of(target);
  if (!grad.defined()) {
    grad = activation_like(beside, shape);
    return {grad, Write::set};
  }
  if (!grad.unique()) {  // another tensor shares this memory: add to a copy
    Tensor copy = activation_like(grad, grad.shape());
    kernel::copy(grad, copy);
    grad = std::move(copy);
  }
  return {grad, Write::add};
}

void Tape::accumulate(const GradientTarget& target, Tensor grad) {
  if (!target) return;
  if (target.parameter) {
    begin_addition(*target.parameter);
    return kernel::accumulate(grad, target.parameter->grad);
  }
  Tensor& into = gradient_of(target);
  if (!into.defined()) {
    into = std::move(grad);
  } else if (into.unique()) {
    kernel::accumulate(grad, into);
  } else if (grad.unique()) {
    kernel::accumulate(into, grad);
    into = std::move(grad);
  } else {
    Tensor sum = activation_like(into, into.shape());
    kernel::add(into, grad, sum);
    into = std::move(sum);
  }
}

}  // namespace zl
