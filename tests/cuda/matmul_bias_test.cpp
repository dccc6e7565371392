// Products with a bias: by cuBLASLt where it can, else by cuBLAS and a second kernel.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/cuda/on_cpu/launches.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Sizes {
  int64_t M = 2, N = 8, K = 8;
  Dtype dtype = Dtype::f32;
  Transpose transpose = Transpose::no;
};

// A tensor that begins `shift` elements after the start of its block.
Tensor shifted(Side& s, const std::vector<double>& values, int64_t shift, const Shape& shape,
               Dtype dtype) {
  std::vector<double> padded(size_t(shift), 0);
  padded.insert(padded.end(), values.begin(), values.end());
  return s.of(padded, {int64_t(padded.size())}, dtype).slice(shift, shape);
}

struct Shifts {
  int64_t x = 0, weight = 0, bias = 0;  // [n]
};

std::vector<double> product(Side& s, const Sizes& z, Shifts shifts = {}, uint64_t stream = 1) {
  const Shape shape = z.transpose == Transpose::no ? Shape{z.K, z.N} : Shape{z.N, z.K};
  const Tensor x = shifted(s, random_values(z.M * z.K, stream), shifts.x, {z.M, z.K}, z.dtype);
  const Tensor weight = shifted(s, random_values(z.K * z.N, 2), shifts.weight, shape, z.dtype);
  const Tensor bias = shifted(s, random_values(z.N, 3), shifts.bias, {z.N}, z.dtype);
  const Tensor y = s.nan({z.M, z.N}, z.dtype);
  kernel::matmul({x}, {weight, z.transpose}, bias, y);
  return values_of(y);
}

// What a GPU without history computes.
std::vector<double> on_new_gpu(const Sizes& z, Shifts shifts = {}) {
  const auto gpu = gpu_of_rank(0);
  Side s(*gpu);
  return product(s, z, shifts);
}

// x times a matrix of ones, plus a bias, on a GPU.
double sum_with_bias(Dtype dtype, const std::vector<double>& x, double bias, int64_t N) {
  const auto gpu = gpu_of_rank(0);
  Side s(*gpu);
  const int64_t K = int64_t(x.size());
  std::vector<double> rows = x;
  rows.insert(rows.end(), x.begin(), x.end());
  const Tensor y = s.nan({2, N}, dtype);
  kernel::matmul({s.of(rows, {2, K}, dtype)},
                 {s.of(std::vector<double>(size_t(K * N), 1), {K, N}, dtype)},
                 s.of(std::vector<double>(size_t(N), bias), {N}, dtype), y);
  return values_of(y)[0];
}

}  // namespace

TEST_CASE("on the GPU a matmul with a bias agrees with the CPU, whichever kernel adds the bias",
          "[cuda]") {
  Sizes z;
  SettingsRow pick = any_pair({4, 2, 3, 4, 4});
  z.dtype = next_float_type(pick);
  z.transpose = pick.next({Transpose::no, Transpose::yes});
  z.M = pick.next({1, 2, 9});
  z.N = pick.next({1, 8, 33, 40});
  z.K = pick.next({1, 7, 8, 64});
  CAPTURE(name(z.dtype), z.M, z.N, z.K, z.transpose);
  const auto [cpu, gpu] = on_both([&](Side& s) { return product(s, z); });
  CHECK(distance(gpu, cpu) < tolerance(z.dtype));
  const auto [other, same] = on_both([&](Side& s) { return product(s, z, {}, 4); });
  CHECK(distance(gpu, other) > tolerance(z.dtype));
}

TEST_CASE("cuBLASLt adds the bias, and a second kernel where it has no algorithm", "[cuda][host]") {
  struct Case {
    Sizes sizes;
    bool fused;
    Shifts shifts = {};
  };
  const Case c = GENERATE(
      Case{{}, true}, Case{{.transpose = Transpose::yes}, true}, Case{{.dtype = Dtype::bf16}, true},
      Case{{.dtype = Dtype::f16}, true}, Case{{}, true, {4, 8, 4}},
      Case{{.dtype = Dtype::f64}, false}, Case{{.N = 6}, false},  // rows of 24 bytes
      Case{{.K = 12, .dtype = Dtype::bf16}, false},
      Case{{.M = 1}, false},  // chosen by the heuristic, then refused
      Case{{}, false, {1, 0, 0}}, Case{{}, false, {0, 1, 0}}, Case{{}, false, {0, 0, 1}});
  CAPTURE(name(c.sizes.dtype), c.sizes.M, c.sizes.N, c.sizes.K, c.shifts.x, c.shifts.bias);
  const auto gpu = gpu_of_rank(0);
  Side s(*gpu);
  std::vector<double> first;
  for (const int time : {1, 2}) {
    CAPTURE(time);
    cuda_on_cpu::launches = {};
    const std::vector<double> values = product(s, c.sizes, c.shifts);
    CHECK(cuda_on_cpu::launches.bias_products == c.fused);
    CHECK(cuda_on_cpu::launches.kernels == !c.fused);
    if (time == 1) first = values;
    CHECK(same_bits(values, first));
  }
}

TEST_CASE("a product with a bias has the same bits wherever its operands begin", "[cuda]") {
  require_gpu();
  const Sizes z{.M = 6, .N = 16, .K = 48, .dtype = GENERATE(Dtype::f32, Dtype::bf16)};
  const int64_t unit = 16 / size_of(z.dtype);
  const std::vector<double> aligned = on_new_gpu(z);
  for (const Shifts& shifts : {Shifts{unit, 0, 0}, Shifts{0, unit, 0}, Shifts{0, 0, unit},
                               Shifts{4 * unit, 2 * unit, 8 * unit}})
    CHECK(same_bits(on_new_gpu(z, shifts), aligned));
}

TEST_CASE("a bias is added to sums in fp32, and their parts are not rounded to 16 bits", "[cuda]") {
  require_gpu();
  // In fp16 the sum of the first four is infinite.
  const std::vector<double> large{3e4, 3e4, 3e4, 3e4, -3e4, -3e4, -3e4, -2.9984e4};
  CHECK(sum_with_bias(Dtype::f16, large, 0.5, 8) == 16.5);
  CHECK(std::isinf(sum_with_bias(Dtype::f16, {3e4, 3e4, 3e4, 3e4, 0, 0, 0, 0}, 0.5, 8)));
}

TEST_CASE("cuBLASLt rounds a product with a bias once, two kernels do so twice", "[cuda][host]") {
  const std::vector<double> x{1, 0x1p-8, 0, 0, 0, 0, 0, 0};  // halfway between two bf16
  CHECK(sum_with_bias(Dtype::bf16, x, 0x1p-8, 8) == 1 + 0x1p-7);
  CHECK(sum_with_bias(Dtype::bf16, x, 0x1p-8, 9) == 1);
}

TEST_CASE("the stages have the same bits where cuBLASLt adds some of the biases",
          "[cuda][host][training]") {
  std::atomic<int64_t> fused{0};
  const auto run = [&](StageKind stage, int64_t channels) {
    StageRunSpec spec{.stage = stage, .ranks = 3, .micro_batches = 2, .steps = 3};
    spec.model = {.channels = channels, .hidden = 24};
    spec.options.precision = Dtype::bf16;
    spec.backends = on_test_gpus();
    fused = 0;
    spec.at_start = [](Stage&, OddModel&, Communicator&, Memory&) { cuda_on_cpu::launches = {}; };
    spec.after_step = [&](Stage&, OddModel&, Communicator&, Memory&) {
      fused += cuda_on_cpu::launches.bias_products;
    };
    const StageRun result = run_stage(spec);
    CHECK(off_the_prediction(spec, result) == "");
    return result;
  };
  const StageRun zero1 = run(StageKind::zero1, 8), zero2 = run(StageKind::zero2, 8);
  CHECK(fused > 0);
  CHECK(run(StageKind::ddp, 8).same_bits(zero1));
  CHECK(run(StageKind::zero3, 8).same_bits(zero2));
  CHECK_FALSE(zero1.same_bits(zero2));
  run(StageKind::ddp, 7);
  CHECK(fused == 0);
}
