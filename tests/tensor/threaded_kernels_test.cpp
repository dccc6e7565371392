// The CPU kernels on several threads: the bits of one thread, at odd sizes that exceed the grain.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"
#include "tests/tensor/same_bits.h"
#include "tests/with_threads.h"

namespace {

using namespace zl;
using namespace zl::test;

constexpr int64_t kRows = 301, kColumns = 515, kVocab = 37;  // 155,015 elements: 19 grains

// Operands of one call: the same values whenever they are made.
struct Operands {
  Cpu& cpu;
  Dtype dtype;
  uint64_t next = 1;
  Tensor noise(Shape shape, Dtype type) {
    const int64_t n = numel(shape);
    return cpu.of(random_values(n, next++), std::move(shape), type);
  }
  Tensor noise(Shape shape) { return noise(std::move(shape), dtype); }
  Tensor nan(Shape shape) { return cpu.nan(std::move(shape), dtype); }
  Tensor statistics(Shape shape) { return cpu.nan(std::move(shape), statistics_type(dtype)); }
  Tensor ids(int64_t rows, int64_t below) {
    const Tensor t = cpu.empty({rows}, Dtype::i32);
    for (int64_t i = 0; i < rows; ++i) t.data<int32_t>()[size_t(i)] = int32_t(i * i % below);
    return t;
  }
};

struct KernelCase {
  std::string name;
  std::function<std::vector<Tensor>(Operands)> outputs;  // runs the kernel
};

const Shape kX{kRows, kColumns};

std::vector<Tensor> layer_norm(Operands make, Write write) {
  const LayerNormSaved saved{make.noise(kX), make.noise({kColumns}), make.statistics({kRows}),
                             make.statistics({kRows})};
  const Tensor y = make.nan(kX), dy = make.noise(kX);
  kernel::layer_norm(saved, make.noise({kColumns}), 1e-5, y);
  const LayerNormGradients out{make.noise(kX), write, make.noise({kColumns}),
                               make.noise({kColumns})};
  kernel::layer_norm_backward(saved, dy, out);
  return {y, saved.mean, saved.rstd, out.dx, out.dweight, out.dbias};
}

std::vector<Tensor> embedding(Operands make) {
  const Tensor ids = make.ids(kRows, kVocab), y = make.nan(kX);
  const Tensor table = make.noise({kVocab, kColumns}), dtable = make.noise({kVocab, kColumns});
  kernel::embedding(ids, table, y);
  kernel::embedding_backward(ids, make.noise(kX), dtable);
  return {y, dtable};
}

std::vector<Tensor> positions(Operands make) {
  const Shape x{7, 43, kColumns}, table{43, kColumns};
  const Tensor y = make.nan(x), dtable = make.noise(table);
  kernel::add_positions(make.noise(x), make.noise(table), y);
  kernel::add_positions_backward(make.noise(x), dtable);
  return {y, dtable};
}

std::vector<Tensor> cross_entropy(Operands make) {
  const int64_t rows = 1301, classes = 117;  // more rows than are added at once
  const Tensor logits = make.noise({rows, classes}), targets = make.ids(rows, classes);
  const Tensor loss = make.statistics({1}), dlogits = make.nan({rows, classes});
  kernel::cross_entropy(logits, targets, loss);
  kernel::cross_entropy_backward(logits, targets, loss, dlogits);
  return {loss, dlogits};
}

std::vector<Tensor> squares(Operands make) {
  const int64_t n = 2 * 1024 * 1024 + 1027;  // more blocks than are added at once
  const Tensor x = make.cpu.empty({n}, make.dtype), sum = make.cpu.nan({1}, Dtype::f64),
               blocks = make.cpu.nan({(n + 1023) / 1024}, Dtype::f64);
  kernel::normal({.seed = 3, .stream = 5}, 7, x);  // an odd first number
  kernel::sum_of_squares(x, sum);
  kernel::squares_of_blocks(x, blocks);
  return {x, sum, blocks};
}

std::vector<Tensor> adamw(Operands make) {
  const Dtype state = statistics_type(make.dtype);
  const Shape n{kRows * kColumns};
  AdamWUpdate u{.parameter = make.noise(n),
                .gradient = make.noise(n),
                .exp_avg = make.noise(n, state),
                .exp_avg_sq = make.cpu.of(Values(size_t(kRows * kColumns), 0.5), n, state),
                .weight_decay = 0.1};
  if (state != make.dtype) u.master = make.noise(n, state);
  kernel::adamw(u);
  std::vector<Tensor> written{u.parameter, u.exp_avg, u.exp_avg_sq};
  if (u.master.defined()) written.push_back(u.master);
  return written;
}

std::vector<Tensor> sgd(Operands make, double momentum) {
  const Shape n{kRows * kColumns};
  SgdUpdate u{.parameter = make.noise(n), .gradient = make.noise(n)};
  u.momentum = momentum;
  if (momentum != 0) u.momentum_buffer = make.noise(n, statistics_type(make.dtype));
  kernel::sgd(u);
  if (momentum == 0) return {u.parameter};
  return {u.parameter, u.momentum_buffer};
}

std::vector<Tensor> copies(Operands make) {
  const Tensor x = make.noise(kX), filled = make.nan(kX), same = make.nan(kX),
               cast = make.cpu.nan(kX, Dtype::f16), into = make.noise(kX),
               wide = make.noise(kX, Dtype::f64), shifted = make.noise(kX);
  kernel::fill(0.3, filled);
  kernel::copy(x, same);
  kernel::copy(x, cast);
  kernel::accumulate(x, into);
  kernel::accumulate(x, wide);
  const int64_t n = kRows * kColumns - 5;
  kernel::copy(shifted.slice(0, {n}), shifted.slice(5, {n}));  // the ranges overlap
  return {filled, same, cast, into, wide, shifted};
}

std::vector<Tensor> elementwise(Operands make) {
  const Tensor x = make.noise(kX), dy = make.noise(kX), y = make.nan(kX), sum = make.nan(kX),
               set = make.nan(kX), added = make.noise(kX), rows = make.noise({kColumns});
  kernel::add(x, dy, sum);
  kernel::gelu(x, y);
  kernel::gelu_backward(x, dy, set, Write::set);
  kernel::gelu_backward(x, dy, added, Write::add);
  kernel::sum_rows(x, rows);
  return {sum, y, set, added, rows};
}

const std::vector<KernelCase> kCases = {
    {"fill, copy, accumulate", copies},
    {"add, gelu, sum_rows", elementwise},
    {"layer_norm", [](Operands make) { return layer_norm(make, Write::set); }},
    {"layer_norm, dx added to", [](Operands make) { return layer_norm(make, Write::add); }},
    {"embedding", embedding},
    {"positions", positions},
    {"cross_entropy", cross_entropy},
    {"normal, squares", squares},
    {"adamw", adamw},
    {"sgd", [](Operands make) { return sgd(make, 0); }},
    {"sgd with momentum", [](Operands make) { return sgd(make, 0.9); }}};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every kernel has the same bits on 1, 2, 3 and 5 threads", "[tensor]") {
  Cpu cpu;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    for (const KernelCase& c : kCases) {
      const std::vector<Tensor> alone = c.outputs({cpu, dtype});
      for (const int threads : {2, 3, 5}) {
        CAPTURE(name(dtype), c.name, threads);
        const WithThreads with(threads);
        const std::vector<Tensor> together = c.outputs({cpu, dtype});
        REQUIRE(together.size() == alone.size());
        for (size_t i = 0; i < alone.size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(alone[i], together[i]));
        }
      }
    }
  }
}

TEST_CASE("a sum that is split among threads has other bits", "[tensor]") {
  Cpu cpu;
  Operands make{cpu, Dtype::f32};
  const Tensor x = make.noise(kX), all = cpu.of(Values(kColumns, 0), {kColumns}, Dtype::f32),
               upper = cpu.of(Values(kColumns, 0), {kColumns}, Dtype::f32),
               lower = cpu.of(Values(kColumns, 0), {kColumns}, Dtype::f32);
  kernel::sum_rows(x, all);
  const int64_t half = kRows / 2;
  kernel::sum_rows(x.slice(0, {half, kColumns}), upper);
  kernel::sum_rows(x.slice(half * kColumns, {kRows - half, kColumns}), lower);
  kernel::add(upper, lower, upper);
  CHECK_FALSE(same_bits(all, upper));
  CHECK(largest_difference(doubles(all), doubles(upper)) < 1e-4);
}

TEST_CASE("of several invalid ids the first row is reported, as on one thread", "[tensor]") {
  Cpu cpu;
  Operands make{cpu, Dtype::f32};
  const Tensor ids = make.ids(kRows, kVocab), table = make.noise({kVocab, kColumns}),
               y = make.nan(kX);
  for (const int row : {60, 150, 299}) ids.data<int32_t>()[size_t(row)] = int32_t(kVocab + row);
  const auto call = [&] { kernel::embedding(ids, table, y); };
  const std::string alone = message_of(call);
  CHECK(alone.find("token id 97 of row 60 ") != std::string::npos);
  const WithThreads with(5);
  CHECK(message_of(call) == alone);
}
