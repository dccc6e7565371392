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
template <class T>
void forward(const Tensor& x, const Tensor& weight, double eps, const Tensor& inverse_rms,
             const Tensor& y) {
  const std::span<T> xs = x.data<T>(), ws = weight.data<T>(), rs = inverse_rms.data<T>(),
                     ys = y.data<T>();
  throw std::logic_error(str("not written yet: forward of ", rs.size(), " rows: ", xs.size(),
                             " values times ", ws.size(), " weights to ", ys.size(), " with eps ",
                             eps));
}

// What the backward function keeps: x, weight by its Var, and 1/rms of each row.
struct Saved {
  Var x, weight;
  Tensor inverse_rms;
};

// Adds to the gradient of weight (C), if it needs one: the sum of dy * x * r over all rows.
template <class T>
void backward_to_weight(const Saved& saved, const Tensor& dy) {
  throw std::logic_error(str("not written yet: the gradient of weight from ",
                             saved.inverse_rms.numel(), " rows of dy ", in_words(dy.shape())));
}

// Sets or adds to the gradient of x (R, C), if it needs one, as the slot of x says.
template <class T>
void backward_to_x(const Saved& saved, const Tensor& dy) {
  throw std::logic_error(str("not written yet: the gradient of x from ", saved.inverse_rms.numel(),
                             " rows of dy ", in_words(dy.shape())));
}

}  // namespace

// Computes the value now. If a tape records, and x or weight needs a gradient, it records the value
// with a backward function; otherwise the value is a constant. Either input may have no tape.
Var rms_norm(const Var& x, const Var& weight, double eps) {
  throw std::logic_error(str("not written yet: rms_norm of x ", in_words(x.value().shape()),
                             " and weight ", in_words(weight.value().shape()), " with eps ", eps,
                             ": check the shapes, call forward, record the backward function"));
}

}  // namespace zl::exercises
