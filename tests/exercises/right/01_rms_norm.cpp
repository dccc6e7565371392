// Exercise 01: RMSNorm and its backward. task.md has the question, rms_norm.h the contract.
#include <cmath>
#include <span>
#include <stdexcept>

#include "tensor/kernels.h"
#include "tutorials/exercises/01_rms_norm/rms_norm.h"

namespace zl::exercises {
namespace {

// y = x * r * weight for each row, where r = 1 / sqrt(mean(x^2) + eps) is written to inverse_rms.
//   x, y (R, C), weight (C), inverse_rms (R)
void forward(const Tensor& x, const Tensor& weight, double eps, const Tensor& inverse_rms,
             const Tensor& y) {
  const std::span<float> xs = x.data<float>(), ws = weight.data<float>(),
                         rs = inverse_rms.data<float>(), ys = y.data<float>();
  //> throw std::logic_error(str("not written yet: forward of ", rs.size(), " rows: ", xs.size(),
  //>                            " values times ", ws.size(), " weights to ", ys.size(),
  //>                            " with eps ", eps));
  const size_t C = ws.size();
  for (size_t row = 0; row < rs.size(); ++row) {
    float squares = 0;
    for (size_t i = row * C; i < (row + 1) * C; ++i) squares += xs[i] * xs[i];
    rs[row] = 1 / std::sqrt(squares / float(C) + float(eps));
    for (size_t c = 0; c < C; ++c) ys[row * C + c] = xs[row * C + c] * rs[row] * ws[c];
  }
  //<
}

// What the backward function keeps: x, weight by its Var, and 1/rms of each row.
struct Saved {
  Var x, weight;
  Tensor inverse_rms;
};

// Adds to the gradient of weight (C), if it needs one: the sum of dy * x * r over all rows.
void backward_to_weight(const Saved& saved, const Tensor& dy) {
  //> throw std::logic_error("not written yet: the gradient of weight");
  const GradientSlot slot = Tape::slot(saved.weight.target(), saved.weight.value().shape(), dy);
  if (slot.write == Write::set) kernel::fill(0, slot.tensor);
  const std::span<float> xs = saved.x.value().data<float>(), rs = saved.inverse_rms.data<float>(),
                         ds = dy.data<float>(), dw = slot.tensor.data<float>();
  const size_t C = dw.size();
  for (size_t i = 0; i < xs.size(); ++i) dw[i % C] += ds[i] * xs[i] * rs[i / C];
  //<
}

// Sets or adds to the gradient of x (R, C), if it needs one, as the slot of x says.
void backward_to_x(const Saved& saved, const Tensor& dy) {
  //> throw std::logic_error("not written yet: the gradient of x");
  // With g = dy * weight: dx = r g - x r^3 mean(g x), because r depends on every x of the row.
  const GradientSlot slot = Tape::slot(saved.x.target(), saved.x.value().shape(), dy);
  const std::span<float> xs = saved.x.value().data<float>(),
                         ws = saved.weight.value().data<float>(),
                         rs = saved.inverse_rms.data<float>(), ds = dy.data<float>(),
                         dx = slot.tensor.data<float>();
  for (size_t row = 0, C = ws.size(); row < rs.size(); ++row) {
    float r = rs[row], sum = 0;
    for (size_t c = 0; c < C; ++c) sum += ds[row * C + c] * ws[c] * xs[row * C + c];
    for (size_t c = 0; c < C; ++c) {
      const size_t i = row * C + c;
      const float value = r * ds[i] * ws[c] - xs[i] * r * r * r * sum / float(C);
      dx[i] = slot.write == Write::set ? value : dx[i] + value;
    }
  }
  //<
}

}  // namespace

// Computes the value now. If a tape records, and x or weight needs a gradient, it records the value
// with a backward function; otherwise the value is a constant. Either input may have no tape.
Var rms_norm(const Var& x, const Var& weight, double eps) {
  //> throw std::logic_error("not written yet: rms_norm: check shapes, compute, record");
  const Tensor &in = x.value(), &w = weight.value();
  require(w.shape() == Shape{in.dim(-1)} && w.dtype() == in.dtype(), "weight does not fit x");
  Tensor y = activation_like(in, in.shape());
  const Saved saved{x, weight, activation_like(in, {in.rows()})};
  forward(in, w, eps, saved.inverse_rms, y);
  Tape* tape = x.tape() ? x.tape() : weight.tape();
  if (!tape || !(x.needs_gradient() || weight.needs_gradient())) return Var::constant(tape, y);
  return tape->record(y, [saved](Tensor dy) {
    if (saved.weight.needs_gradient()) backward_to_weight(saved, dy);
    if (saved.x.needs_gradient()) backward_to_x(saved, dy);
  });
  //<
}

}  // namespace zl::exercises
