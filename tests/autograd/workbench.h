// One rank's memory on the CPU, poisoned so that unwritten elements are NaN, and tensors of any
// type made from doubles.
#pragma once

#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tests/tensor/cpu_case.h"

namespace zl {

using test::largest_difference;

// The elements as doubles; exact for every type.
inline std::vector<double> values(const Tensor& t) {
  if (t.dtype() != Dtype::i32) return test::doubles(t);
  const auto ids = kernel::download<int32_t>(t);
  return {ids.begin(), ids.end()};
}

// Rounds to the tensor's type.
inline void assign(const Tensor& to, const std::vector<double>& from) {
  if (to.dtype() == Dtype::i32)
    return kernel::upload<int32_t>(std::vector<int32_t>(from.begin(), from.end()), to);
  for_float_type(to.dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<T> rounded;
    for (const double x : from) rounded.push_back(T(Compute<T>(x)));
    kernel::upload<T>(rounded, to);
  });
}

struct Workbench {
  Backend& backend = cpu_backend();
  EventStream events{};
  Memory memory{{}, backend, events, {.poison = true}};
  std::deque<Parameter> parameters;
  uint64_t streams = 0;

  Tensor tensor(Shape shape, const std::vector<double>& from, Dtype type = Dtype::f64) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), type);
    assign(t, from);
    return t;
  }
  // Standard normal numbers, others at each call.
  Tensor normal(Shape shape, Dtype type = Dtype::f64) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), type);
    kernel::normal({.seed = 7, .stream = streams++}, 0, t);
    return t;
  }
  Tensor ids(Shape shape, int64_t vocab) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), Dtype::i32);
    std::vector<double> drawn;
    const PhiloxStream random{11, streams++};
    for (int64_t i = 0; i < t.numel(); ++i)
      drawn.push_back(std::floor(random.uniform(uint64_t(i)) * double(vocab)));
    assign(t, drawn);
    return t;
  }
  // A leaf with standard normal values and a cleared gradient.
  Parameter& parameter(const std::string& name, Shape shape, Dtype type = Dtype::f64) {
    parameters.push_back({.name = name, .shape = shape});
    Parameter& p = parameters.back();
    p.data = Tensor::zeros(memory, MemoryUse::parameter, shape, type);
    p.grad = Tensor::zeros(memory, MemoryUse::gradient, shape, type);
    kernel::normal({.seed = 7, .stream = streams++}, 0, p.data);
    return p;
  }
  int64_t activation_bytes() const { return memory.ledger().live(MemoryUse::activation); }
};

// sum of w * y: a scalar that makes every element of y count differently.
inline Var weighted_sum(const Var& y, const Tensor& w) {
  const auto a = values(y.value()), b = values(w);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  Tensor value = activation_like(y.value(), {1});
  assign(value, {sum});
  if (!y.needs_gradient()) return Var::constant(y.tape(), value);
  return y.tape()->record(value, [to = y.target(), w](Tensor dloss) {
    Tensor dy = activation_like(w, w.shape());
    auto scaled = values(w);
    for (double& x : scaled) x *= values(dloss)[0];
    assign(dy, scaled);
    Tape::accumulate(to, std::move(dy));
  });
}

inline double largest(const std::vector<double>& a) {
  double m = 0;
  for (double x : a) m = std::isnan(x) ? INFINITY : std::max(m, std::abs(x));
  return m;
}

}  // namespace zl
