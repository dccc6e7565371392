// Every kernel once, at odd sizes: for tests that run them all in two ways and compare.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/platform/quantize.h"
#include "tests/tensor/cpu_case.h"

namespace zl::test::kernel_cases {

// Operands of one call: the same values whenever they are made. Large: 155,015 elements, 19 grains.
struct Operands {
  Cpu& cpu;
  Dtype dtype;
  bool large = true;
  int64_t offset = 0;  // of all operands in their storages
  uint64_t next = 1;
  int64_t size(int64_t of_large, int64_t of_small) const { return large ? of_large : of_small; }
  int64_t rows() const { return size(301, 6); }
  int64_t columns() const { return size(515, 77); }
  Shape x() const { return {rows(), columns()}; }

  Tensor of(const Values& values, Shape shape, Dtype type) const {
    return cpu.of(values, std::move(shape), type, offset);
  }
  Tensor noise(Shape shape, Dtype type) {
    const int64_t n = numel(shape);
    return of(random_values(n, next++), std::move(shape), type);
  }
  Tensor noise(Shape shape) { return noise(std::move(shape), dtype); }
  Tensor nan(Shape shape, Dtype type) const { return cpu.nan(std::move(shape), type, offset); }
  Tensor nan(Shape shape) const { return nan(std::move(shape), dtype); }
  Tensor statistics(Shape shape) { return nan(std::move(shape), statistics_type(dtype)); }
  Tensor ids(int64_t rows, int64_t below) {
    const Tensor t = cpu.empty({rows}, Dtype::i32);
    for (int64_t i = 0; i < rows; ++i) t.data<int32_t>()[size_t(i)] = int32_t(i * i % below);
    return t;
  }
};

inline constexpr int64_t kVocab = 37;

struct KernelCase {
  std::string name;
  std::function<std::vector<Tensor>(Operands)> outputs;  // runs the kernel
  bool bits = false;  // all backends promise the same; else the same but for rounding
};

inline std::vector<Tensor> matmul(Operands make) {
  const int64_t m = make.size(301, 29), n = make.size(215, 45), k = 77;
  std::vector<Tensor> written;
  for (const Transpose ta : {Transpose::no, Transpose::yes})
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      const Tensor a = make.noise(ta == Transpose::no ? Shape{m, k} : Shape{k, m}),
                   b = make.noise(tb == Transpose::no ? Shape{k, n} : Shape{n, k});
      written.push_back(make.noise({m, n}));
      kernel::matmul({a, ta}, {b, tb}, {}, written.back(), Write::add);
    }
  written.push_back(make.nan({m, n}));
  kernel::matmul({make.noise({m, k})}, {make.noise({k, n})}, make.noise({n}), written.back());
  return written;
}

inline std::vector<Tensor> attention(Operands make) {
  const int64_t B = make.size(3, 2), T = make.size(131, 70), H = 3, C = 13 * H;
  const AttentionSaved saved{make.noise({B, T, 3 * C}), make.nan({B, T, C}),
                             make.statistics({B, H, T}), H};
  const Tensor dqkv = make.nan({B, T, 3 * C});
  kernel::attention(saved);
  kernel::attention_backward(saved, make.noise({B, T, C}), dqkv);
  return {saved.y, saved.log_sum_exp, dqkv};
}

inline std::vector<Tensor> layer_norm(Operands make, Write write) {
  const LayerNormSaved saved{make.noise(make.x()), make.noise({make.columns()}),
                             make.statistics({make.rows()}), make.statistics({make.rows()})};
  const Tensor y = make.nan(make.x()), dy = make.noise(make.x());
  kernel::layer_norm(saved, make.noise({make.columns()}), 1e-5, y);
  const LayerNormGradients out{make.noise(make.x()), write, make.noise({make.columns()}),
                               make.noise({make.columns()})};
  kernel::layer_norm_backward(saved, dy, out);
  return {y, saved.mean, saved.rstd, out.dx, out.dweight, out.dbias};
}

inline std::vector<Tensor> embedding(Operands make) {
  const Tensor ids = make.ids(make.rows(), kVocab), y = make.nan(make.x());
  const Tensor table = make.noise({kVocab, make.columns()}),
               dtable = make.noise({kVocab, make.columns()});
  kernel::embedding(ids, table, y);
  kernel::embedding_backward(ids, make.noise(make.x()), dtable);
  return {y, dtable};
}

inline std::vector<Tensor> positions(Operands make) {
  const int64_t T = make.size(43, 3), C = make.columns();
  const Shape shape{make.rows() / T, T, C}, longer{T + 2, C};
  const Tensor x = make.noise(shape), table = make.noise(longer), dtable = make.noise(longer),
               y = make.nan(shape);
  kernel::add_positions(x, table, y);
  kernel::add_positions_backward(y, dtable);
  kernel::add_positions(x, table, x);
  return {x, y, dtable};
}

inline std::vector<Tensor> cross_entropy(Operands make) {
  const int64_t rows = make.size(1301, 9), classes = 117;  // more rows than are added at once
  const Tensor logits = make.noise({rows, classes}), targets = make.ids(rows, classes);
  const Tensor loss = make.statistics({1}), dlogits = make.nan({rows, classes});
  kernel::cross_entropy(logits, targets, loss);
  kernel::cross_entropy_backward(logits, targets, loss, dlogits);
  return {loss, dlogits};
}

inline std::vector<Tensor> squares(Operands make) {
  const int64_t n =
      make.size(2 * 1024 * 1024, 1024) + 1027;  // large: more blocks than are added at once
  const Tensor x = make.nan({n}), sum = make.nan({1}, Dtype::f64),
               blocks = make.nan({(n + 1023) / 1024}, Dtype::f64);
  kernel::normal({.seed = make.next, .stream = 5}, 7, x);  // an odd first number
  kernel::sum_of_squares(x, sum);
  kernel::squares_of_blocks(x, blocks);
  return {x, sum, blocks};
}

inline std::vector<Tensor> adamw(Operands make) {
  const Dtype state = statistics_type(make.dtype);
  const Shape n{make.rows() * make.columns()};
  OptimizerUpdate u{.parameter = make.noise(n),
                    .gradient = make.noise(n),
                    .moment = make.noise(n, state),
                    .exp_avg_sq = make.of(Values(size_t(numel(n)), 0.5), n, state),
                    .config = {.weight_decay = 0.1}};
  if (state != make.dtype) u.master = make.noise(n, state);
  kernel::update_parameters(u);
  std::vector<Tensor> written{u.parameter, u.moment, u.exp_avg_sq};
  if (u.master.defined()) written.push_back(u.master);
  return written;
}

inline std::vector<Tensor> sgd(Operands make, double momentum) {
  const Shape n{make.rows() * make.columns()};
  OptimizerUpdate u{.parameter = make.noise(n), .gradient = make.noise(n)};
  u.config = {.kind = OptimizerKind::sgd, .momentum = momentum};
  if (momentum != 0) u.moment = make.noise(n, statistics_type(make.dtype));
  u.step = 2;
  kernel::update_parameters(u);
  if (momentum == 0) return {u.parameter};
  return {u.parameter, u.moment};
}

inline std::vector<Tensor> copies(Operands make) {
  const Tensor x = make.noise(make.x()), filled = make.nan(make.x()), same = make.nan(make.x()),
               cast = make.nan(make.x(), Dtype::f16), into = make.noise(make.x()),
               wide = make.noise(make.x(), Dtype::f64), shifted = make.noise(make.x());
  kernel::fill(0.3, filled);
  kernel::copy(x, same);
  kernel::copy(x, cast);
  kernel::accumulate(x, into);
  kernel::accumulate(x, wide);
  const int64_t n = x.numel() - 5;
  kernel::copy(shifted.slice(0, {n}), shifted.slice(5, {n}));  // the ranges overlap
  return {filled, same, cast, into, wide, shifted};
}

inline std::vector<Tensor> sums(Operands make) {
  const Tensor x = make.noise(make.x()), y = make.noise(make.x()), sum = make.nan(make.x()),
               rows = make.noise({make.columns()});
  kernel::add(x, y, sum);
  kernel::add(x, y, y);
  kernel::divide(3, y);
  kernel::sum_rows(x, rows);
  return {y, sum, rows};
}

inline std::vector<Tensor> gelu(Operands make) {
  const Tensor x = make.noise(make.x()), dy = make.noise(make.x()), y = make.nan(make.x()),
               set = make.nan(make.x()), added = make.noise(make.x());
  kernel::gelu(x, y);
  kernel::gelu_backward(x, dy, set, Write::set);
  kernel::gelu_backward(x, dy, added, Write::add);
  return {y, set, added};
}

inline const std::vector<KernelCase> kCases = {
    {"matmul", matmul},
    {"attention", attention},
    {"gelu", gelu},
    {"fill, copy, accumulate", copies, true},
    {"add, divide, sum_rows", sums, true},
    {"layer_norm", [](Operands make) { return layer_norm(make, Write::set); }},
    {"layer_norm, dx added to", [](Operands make) { return layer_norm(make, Write::add); }},
    {"embedding", embedding, true},
    {"positions", positions, true},
    {"cross_entropy", cross_entropy},
    {"normal, squares", squares, true},
    {"adamw", adamw, true},
    {"sgd", [](Operands make) { return sgd(make, 0); }, true},
    {"sgd with momentum", [](Operands make) { return sgd(make, 0.9); }, true}};

}  // namespace zl::test::kernel_cases
