// How much the kernels ask of a GPU: launches, blocks that fill it, accesses of 16 bytes. Counted
// by the emulator.
#include "tests/cuda/on_cpu/launches.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "autograd/ops.h"
#include "dist/run_ranks.h"
#include "stages/engine.h"
#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/stages/odd_model.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kMultiprocessors = 132;  // of an H100

// What this thread launches and runs while work() runs.
template <class Work>
cuda_on_cpu::Launches counted(Side& gpu, Work work) {
  gpu.memory.backend().synchronize();
  cuda_on_cpu::launches = {};
  work();
  gpu.memory.backend().synchronize();
  return cuda_on_cpu::launches;
}

// Of an optimizer step.
int64_t launches_of(Model& model, StageKind stage) {
  int64_t launched = 0;
  run_ranks(1, [&](Communicator& comm) {
    const auto gpu = gpu_of_rank(0);
    Memory memory({DeviceKind::cuda}, *gpu, comm.events());
    const auto engine = initialize(model.units(), comm, memory, {.stage = stage});
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
    Var loss = engine->forward([&](Tape* tape, UnitObserver& observer) {
      return model.loss(tape, observer, {ids, ids});
    });
    engine->backward(loss);
    cuda_on_cpu::launches = {};
    engine->step();
    launched = cuda_on_cpu::launches.kernels;
  });
  return launched;
}

}  // namespace

TEST_CASE("sum_rows has two blocks for each multiprocessor at the width of GPT-2", "[cuda][host]") {
  Side gpu(test_gpu());
  const Tensor x = Tensor::zeros(gpu.memory, MemoryUse::activation, {1024, 768}, Dtype::f32),
               sum = Tensor::zeros(gpu.memory, MemoryUse::gradient, {768}, Dtype::f32);
  const auto launched = counted(gpu, [&] { kernel::sum_rows(x, sum); });
  CHECK(launched.kernels == 2);
  CHECK(launched.blocks >= 2 * kMultiprocessors);
}

TEST_CASE("a dry run of a GPU predicts the workspace of sum_rows", "[cuda]") {
  require_gpu();
  const auto peak = [](Backend& backend) {
    Side s(backend);
    const Tensor x = Tensor::zeros(s.memory, MemoryUse::activation, {100, 70}, Dtype::bf16);
    kernel::sum_rows(x, Tensor::zeros(s.memory, MemoryUse::gradient, {70}, Dtype::bf16));
    return s.memory.ledger().peak(MemoryUse::workspace);
  };
  CHECK(peak(test_gpu()) == 6 * 70 * 4);  // 100 / 16 parts of fp32 sums
  CHECK(peak(meta_backend(DeviceKind::cuda)) == 6 * 70 * 4);
}

TEST_CASE("squares of many tensors take two launches for each 64 tensors", "[cuda][host]") {
  Side gpu(test_gpu());
  const int64_t count = GENERATE(1, 12, 64, 65);
  std::vector<Tensor> xs;
  for (int64_t i = 0; i < count; ++i) xs.push_back(gpu.of(random_values(i, 1), {i}, Dtype::f32));
  const Tensor out = gpu.nan({count}, Dtype::f64);
  const auto launched = counted(gpu, [&] { kernel::sums_of_squares(xs, out); });
  CHECK(launched.kernels == (count <= 64 ? 2 : 4) - (count == 1));  // without elements: one less
  const std::vector<double> together = values_of(out);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor alone = gpu.nan({1}, Dtype::f64);
    kernel::sum_of_squares(xs[size_t(i)], alone);
    CHECK(together[size_t(i)] == values_of(alone)[0]);
  }
}

TEST_CASE("kernels on elements use accesses of 16 bytes, and not where they would be misaligned",
          "[cuda][host]") {
  Side gpu(test_gpu());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int64_t n = 1024, vectors = n * size_of(dtype) / 16;
  const auto tensor = [&](uint64_t stream) {
    return gpu.of(random_values(n + 8, stream), {n + 8}, dtype);
  };
  const Tensor a = tensor(1), b = tensor(2), y = tensor(3);
  const auto run = [&](std::string_view what, int64_t shift) {
    const Tensor from = a.slice(0, {n}), other = b.slice(shift, {n}), to = y.slice(8, {n});
    return counted(gpu,
                   [&] {
                     if (what == "fill") return kernel::fill(1, other);
                     if (what == "add") return kernel::add(from, other, to);
                     if (what == "accumulate") return kernel::accumulate(other, to);
                     if (what == "gelu") return kernel::gelu(other, to);
                     if (what == "gelu_backward")
                       return kernel::gelu_backward(from, other, to, Write::set);
                     kernel::gelu_backward(from, other, to, Write::add);
                   })
        .vector_accesses;
  };
  const auto [what, tensors] =
      GENERATE(table<const char*, int64_t>({{"fill", 1},
                                            {"add", 3},
                                            {"accumulate", 3},
                                            {"gelu", 2},
                                            {"gelu_backward", 3},
                                            {"gelu_backward, adding", 4}}));
  CAPTURE(what, name(dtype));
  CHECK(run(what, 0) == tensors * vectors);
  CHECK(run(what, 1) == 0);
}

TEST_CASE("AdamW, layer norm and cross-entropy read and write each element in accesses of 16 bytes",
          "[cuda][host]") {
  Side gpu(test_gpu());
  const int64_t rows = 4, columns = 64, vectors = rows * columns / 4;
  const auto tensor = [&](Shape shape) {
    const int64_t n = numel(shape);
    return gpu.of(random_values(n, 1), std::move(shape), Dtype::f32);
  };
  const Tensor x = tensor({rows, columns}), y = tensor({rows, columns});
  const auto vectors_of = [&](auto work) { return counted(gpu, work).vector_accesses; };
  const LayerNormSaved saved{x, tensor({columns}), tensor({rows}), tensor({rows})};
  const Tensor bias = tensor({columns}), loss = tensor({1});
  // The input three times (mean, variance, output), weight, bias, output.
  CHECK(vectors_of([&] { kernel::layer_norm(saved, bias, 1e-5, y); }) == 6 * vectors);
  const Tensor targets = gpu.of(std::vector<int32_t>{0, 1, 2, 63}, {rows});
  CHECK(vectors_of([&] { kernel::cross_entropy(x, targets, loss); }) == vectors);
  CHECK(vectors_of([&] { kernel::cross_entropy_backward(x, targets, loss, y); }) == 3 * vectors);
  // Parameter and moments are read and written, the gradient is read.
  const Tensor squares =
      Tensor::zeros(gpu.memory, MemoryUse::optimizer_state, {rows, columns}, Dtype::f32);
  const OptimizerUpdate update{x, y, tensor({rows, columns}), squares, {}};
  CHECK(vectors_of([&] { kernel::update_parameters(update); }) == 7 * vectors);
}

TEST_CASE("the emulator refuses an access of 16 bytes at another address", "[cuda][host]") {
  alignas(16) char bytes[32] = {};
  CHECK_NOTHROW(cuda_on_cpu::check_vector_access(bytes));
  CHECK_THROWS_AS(cuda_on_cpu::check_vector_access(bytes + 8), std::logic_error);
}

TEST_CASE("products with an odd vocabulary have rows that begin at multiples of 16 bytes",
          "[cuda][host]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int64_t V = GENERATE(11, 16);
  std::vector<double> values;
  for (Backend* backend : {&test_gpu(), &cpu_backend()}) {
    Side s(*backend);
    Parameter wte{.name = "wte", .shape = {V, 8}};
    wte.data = s.of(random_values(V * 8, 1), {V, 8}, dtype);
    wte.grad = Tensor::zeros(s.memory, MemoryUse::gradient, {V, 8}, dtype);
    const Tensor targets = s.of(std::vector<int32_t>{0, 3, 10}, {3});
    std::vector<double> got;
    const auto launched = counted(s, [&] {
      Tape tape;
      const Var x = Var::constant(&tape, s.of(random_values(3 * 8, 2), {3, 8}, dtype));
      const Var loss = cross_entropy(project(x, Var::parameter(&tape, wte)), targets);
      got = values_of(loss.value());
      const Tensor seed = activation_like(loss.value(), {1});
      kernel::fill(1, seed);
      tape.backward(loss, seed);
    });
    CHECK(launched.unaligned_rows == 0);
    for (const double v : values_of(wte.grad)) got.push_back(v);
    if (values.empty())
      values = got;
    else
      CHECK(distance(values, got) < tolerance(dtype));
  }
}

TEST_CASE("a dry run of a GPU predicts the bytes of padded logits", "[cuda]") {
  require_gpu();
  const auto peak = [](Backend& backend) {
    Side s(backend);
    Parameter wte{.name = "wte", .shape = {11, 8}};
    wte.data = Tensor::zeros(s.memory, MemoryUse::parameter, {11, 8}, Dtype::f32);
    const Var x =
        Var::constant(nullptr, Tensor::zeros(s.memory, MemoryUse::workspace, {3, 8}, Dtype::f32));
    project(x, Var::parameter(nullptr, wte));
    return s.memory.ledger().peak(MemoryUse::activation);
  };
  CHECK(peak(cpu_backend()) == 3 * 11 * 4);
  CHECK(peak(test_gpu()) == 3 * 16 * 4);
  CHECK(peak(meta_backend(DeviceKind::cuda)) == 3 * 16 * 4);
}

TEST_CASE("a step takes five launches for the norm and two for each unit, in every stage",
          "[cuda][host]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const int64_t blocks = GENERATE(1, 3);
  CAPTURE(name(stage), blocks);
  OddModel model({.blocks = blocks});
  // A sum that is cleared, partial sums of squares and their trees, the sum over units in parts;
  // and each unit's update and cleared gradient.
  CHECK(launches_of(model, stage) == 5 + 2 * (1 + blocks));
}

TEST_CASE("parameters that do not decay are updated apart from their neighbours", "[cuda][host]") {
  Side gpu(test_gpu());
  const Tensor p = Tensor::zeros(gpu.memory, MemoryUse::parameter, {96}, Dtype::f32),
               g = Tensor::zeros(gpu.memory, MemoryUse::gradient, {96}, Dtype::f32);
  const auto launches_of = [&](double of_the_second) {
    FlatOptimizer optimizer(gpu.memory, 96, Dtype::f32, {},
                            {{0, 32, 0.1}, {32, 64, of_the_second}, {64, 96, 0.1}});
    return counted(gpu, [&] { optimizer.update(p, g, 0.01, 1); }).kernels;
  };
  CHECK(launches_of(0.1) == 1);
  CHECK(launches_of(0) == 3);
}

TEST_CASE("a layer whose input is as wide as a padded row of its weight is refused on a GPU, too",
          "[cuda][host]") {
  const auto gpu = gpu_of_rank(0);
  Side side(*gpu);
  Parameter wide{"wide", {8, 3}}, narrow{"narrow", {5, 3}};
  wide.data = side.of(std::vector<double>(24, 1), {8, 3}, Dtype::f32);
  narrow.data = side.of(std::vector<double>(15, 1), {5, 3}, Dtype::f32);
  const Var x = Var::constant(nullptr, side.of(std::vector<double>(16, 1), {2, 8}, Dtype::f32));
  CHECK(values_of(matmul(x, Var::parameter(nullptr, wide)).value())[0] == 8);
  CHECK_THROWS_AS(matmul(x, Var::parameter(nullptr, narrow)), std::invalid_argument);
}

TEST_CASE("a large download takes one block of pinned memory, small ones share a slab",
          "[cuda][host]") {
  const auto pinned = [](int64_t bytes) {
    const auto gpu = gpu_of_rank(0);
    Side side(*gpu);
    const Tensor t = side.nan({bytes / 4}, Dtype::f32);
    const int64_t before = cuda_on_cpu::pinned_bytes();
    (void)gpu->start_download(t)();
    return cuda_on_cpu::pinned_bytes() - before;
  };
  const int64_t large = 3 << 20;
  CHECK(pinned(large) >= large);
  CHECK(pinned(large) <= 2 * large);
}
