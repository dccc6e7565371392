#include "autograd/tape.h"

#include "tensor/kernels.h"

namespace zl {

Var Var::parameter(Tape* tape, Parameter& p) {
  require(p.open, "parameter '", p.name,
          "' is used outside its unit: what several units share belongs to root");
  Var v({tape, -1, p.requires_grad ? &p : nullptr}, {});
  v.parameter_ = &p;
  return v;
}

const Tensor& Var::value() const {
  if (!parameter_) return value_;
  require(parameter_->data.defined(), "parameter '", parameter_->name,
          "' is released: its unit must be gathered before use");
  return parameter_->data;
}

Var Tape::record(Tensor value, Backward backward) {
  entries_.push_back({.grad = {}, .backward = std::move(backward), .on_mark = {}});
  return Var({this, int(entries_.size()) - 1}, std::move(value));
}

void Tape::mark(std::function<void()> on_backward) {
  entries_.push_back({.grad = {}, .backward = {}, .on_mark = std::move(on_backward)});
}

void Tape::backward(const Var& from, Tensor seed) {
  require(
      from.tape() == this && from.needs_gradient() && from.target().index < int(entries_.size()),
      "backward: this value is not on this tape; a tape is walked once");
  require(seed.numel() == from.value().numel(), "backward: the seed ", to_string(seed.shape()),
          " must have the shape ", to_string(from.value().shape()));
  struct Clear {
    std::vector<Entry>& entries;
    ~Clear() {
      while (!entries.empty()) entries.pop_back();
    }  // the order of the walk
  } clear{entries_};
  accumulate(from.target(), std::move(seed));
  while (!entries_.empty()) {
    // The entry leaves the tape before it runs, so that nothing it captured outlives it.
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    if (entry.on_mark) entry.on_mark();
    if (entry.backward && entry.grad.defined()) entry.backward(std::move(entry.grad));
  }
}

namespace {
void require_buffer(const Parameter& p) {
  require(p.grad.defined(), "parameter '", p.name,
          "' has no gradient buffer: its stage must provide one before backward");
}
}  // namespace

Tensor& Tape::gradient_of(const GradientTarget& target) {
  require(target.index < int(target.tape->entries_.size()),
          "backward: an input of this value is no longer on its tape");
  return target.tape->entries_[size_t(target.index)].grad;
}

GradientSlot Tape::slot(const GradientTarget& target, const Shape& shape, const Tensor& beside) {
  if (target.parameter) {
    require_buffer(*target.parameter);
    return {target.parameter->grad, Write::add};
  }
  Tensor& grad = gradient_of(target);
  if (!grad.defined()) {
    grad = like(beside, shape);
    return {grad, Write::set};
  }
  if (!grad.unique()) {  // someone still reads what was moved in here: add to a copy
    Tensor copy = like(grad, grad.shape());
    kernel::copy(grad, copy);
    grad = std::move(copy);
  }
  return {grad, Write::add};
}

void Tape::accumulate(const GradientTarget& target, Tensor grad) {
  if (!target) return;
  if (target.parameter) {
    require_buffer(*target.parameter);
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
    Tensor sum = like(into, into.shape());
    kernel::add(into, grad, sum);
    into = std::move(sum);
  }
}

}  // namespace zl
