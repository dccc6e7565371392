// GELU in its tanh form: Hendrycks & Gimpel 2016 (arXiv:1606.08415), section 2.
//
//   y = x/2 (1 + tanh u) = x s(2u),   u = sqrt(2/pi) (x + 0.044715 x^3),   s(z) = 1 / (1 + e^-z)
//
// The second form has no sum that cancels where tanh u is near -1.
//
// Backward, by the product rule, with s'(z) = s(z) (1 - s(z)) = s(z) s(-z):
//
//   dy/dx = s(2u) + x s(2u) s(-2u) 2u',   u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
//
// x^3 must not overflow: |x| < 1e12 in fp32.
#include <cmath>

#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

constexpr double kSqrt2OverPi = 0.7978845608028654, kCubic = 0.044715;

template <class F>
F logistic(F z) {
  return 1 / (1 + std::exp(-z));
}

template <class F>
F two_u(F x) {
  return F(2 * kSqrt2OverPi) * (x + F(kCubic) * x * x * x);
}

template <class F>
F slope(F x) {
  const F z = two_u(x), two_du = F(2 * kSqrt2OverPi) * (1 + F(3 * kCubic) * x * x);
  return logistic(z) + x * logistic(z) * logistic(-z) * two_du;
}

// Operations per element: a cubic polynomial for tanh's argument, an exponential, a division.
constexpr int64_t kGeluOperations = 14;

}  // namespace

void kernel::gelu(const Tensor& x, const Tensor& y) {
  require_same("gelu", x, {&y});
  recorded("gelu", y, kGeluOperations * x.numel(), {&x, &y}).gelu(x, y);
}

void Backend::gelu(const Tensor& in, const Tensor& out) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    const auto x = in.data<T>(), y = out.data<T>();
    for (size_t i = 0; i < y.size(); ++i) {
      const Compute<T> value = x[i];
      y[i] = T(value * logistic(two_u(value)));
    }
  });
}

void kernel::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  require_same("gelu_backward", x, {&dy, &dx});
  recorded("gelu_backward", dx, 2 * kGeluOperations * x.numel(), {&x, &dy, &dx})
      .gelu_backward(x, dy, dx, write);
}

void Backend::gelu_backward(const Tensor& in, const Tensor& gradient, const Tensor& out,
                            Write write) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const auto x = in.data<T>(), dy = gradient.data<T>(), dx = out.data<T>();
    for (size_t i = 0; i < dx.size(); ++i) {
      const F value = F(dy[i]) * slope(F(x[i]));
      dx[i] = T(write == Write::add ? F(dx[i]) + value : value);
    }
  });
}

}  // namespace zl
