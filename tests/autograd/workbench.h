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

namespace zl {

// The elements as doubles; exact for every type.
inline std::vector<double> values(const Tensor& t) {
  const auto widened = [](const auto& host) {
    std::vector<double> wide;
    for (const auto& x : host) wide.push_back(double(x));
    return wide;
  };
  switch (t.dtype()) {
    case Dtype::f32: return widened(kernel::download<float>(t));
    case Dtype::bf16: return widened(kernel::download<bf16>(t));
    case Dtype::f16: return widened(kernel::download<f16>(t));
    case Dtype::f64: return kernel::download<double>(t);
    case Dtype::i32: return widened(kernel::download<int32_t>(t));
    case Dtype::u8: break;  // codes of a quantized message: no graph has them
  }
  return {};
}

template <class T>
void upload_rounded(const std::vector<double>& from, const Tensor& to) {
  std::vector<T> host;
  for (double x : from) host.push_back(T(Compute<T>(x)));
  kernel::upload<T>(host, to);
}

// Rounds to the tensor's type.
inline void assign(const Tensor& to, const std::vector<double>& from) {
  switch (to.dtype()) {
    case Dtype::f32: return upload_rounded<float>(from, to);
    case Dtype::bf16: return upload_rounded<bf16>(from, to);
    case Dtype::f16: return upload_rounded<f16>(from, to);
    case Dtype::f64: return upload_rounded<double>(from, to);
    case Dtype::i32: return upload_rounded<int32_t>(from, to);
    case Dtype::u8: break;
  }
}

struct Workbench {
  EventStream events;
  Memory memory{{}, cpu_backend(), events, {.poison = true}};
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

// max |a - b|; infinite where one is NaN or the lengths differ.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  std::vector<double> d;
  for (size_t i = 0; i < a.size(); ++i) d.push_back(a[i] - b[i]);
  return largest(d);
}

}  // namespace zl
