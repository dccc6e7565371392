#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"
#include "tests/tensor/same_bits.h"

namespace {

using namespace zl;
using namespace zl::test;

struct Options {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

struct Result {
  Values parameter, buffer;
};

// Four steps of torch.optim.SGD, in double.
Result reference(const Options& o, Values p, const std::vector<Values>& gradients) {
  Values buffer(p.size());
  for (size_t t = 0; t < gradients.size(); ++t) {
    for (size_t i = 0; i < p.size(); ++i) {
      double g = 0.5 * gradients[t][i] + o.weight_decay * p[i];
      if (o.momentum != 0) {
        buffer[i] = t == 0 ? g : o.momentum * buffer[i] + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * buffer[i] : buffer[i];
      }
      p[i] -= 0.1 * g;
    }
  }
  return {p, buffer};
}

SgdUpdate update_of(Cpu& cpu, const Options& o, Dtype dtype, int64_t n) {
  SgdUpdate u{cpu.of(random_values(n, 1), {n}, dtype), {}};
  if (o.momentum != 0)
    u.momentum_buffer = cpu.nan({n}, statistics_type(dtype));  // its old values must not matter
  u.gradient_scale = 0.5;
  u.lr = 0.1, u.momentum = o.momentum, u.dampening = o.dampening, u.weight_decay = o.weight_decay,
  u.nesterov = o.nesterov;
  return u;
}

TEST_CASE("four steps of sgd are torch.optim.SGD's, with every option and type", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64),
              gradient = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f64);
  const bool master = GENERATE(false, true);
  const Options o = GENERATE(Options{}, Options{0, 0, 0.1}, Options{0.9}, Options{0.9, 0.5, 0.1},
                             Options{0.9, 0, 0.1, true});
  const int64_t n = 37;
  SgdUpdate u = update_of(cpu, o, dtype, n);
  if (master) u.master = cpu.of(doubles(u.parameter), {n}, statistics_type(dtype));
  const Values start = doubles(u.parameter);
  std::vector<Values> gradients;
  for (uint64_t t = 0; t < 4; ++t) {
    u.gradient = cpu.of(random_values(n, 10 + t), {n}, gradient);
    gradients.push_back(doubles(u.gradient));
    u.first_step = t == 0;
    kernel::sgd(u);
  }
  const Result expected = reference(o, start, gradients);
  const double tolerance = (master ? 16 * compute_epsilon(dtype) : 4 * epsilon(dtype));
  CHECK(largest_difference(doubles(master ? u.master : u.parameter), expected.parameter) <
        tolerance);
  if (o.momentum != 0)
    CHECK(largest_difference(doubles(u.momentum_buffer), expected.buffer) < 4 * tolerance);
  if (master) CHECK(same_bits(u.parameter, cpu.of(doubles(u.master), {n}, dtype)));
  Options wrong = o;
  wrong.weight_decay += 0.5;
  CHECK(largest_difference(doubles(u.parameter), reference(wrong, start, gradients).parameter) >
        tolerance);
}

TEST_CASE("sgd of a range gives the bits of that range of a full update", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  const Options o = GENERATE(Options{}, Options{0.9, 0.1, 0.1, true});
  const int64_t n = 200;
  const Tensor gradient = cpu.of(random_values(n, 2), {n}, dtype);
  SgdUpdate whole = update_of(cpu, o, dtype, n);
  whole.gradient = gradient;
  const Tensor buffer = cpu.of(random_values(n, 3), {n}, statistics_type(dtype)),
               fresh = cpu.of(doubles(whole.parameter), {n}, dtype);
  if (o.momentum != 0) kernel::copy(buffer, whole.momentum_buffer);
  kernel::sgd(whole);
  bool same = true;
  for (int64_t begin = 0; begin < 64; ++begin) {
    for (int64_t length = 0; length <= 130; length += 1 + begin % 3) {
      SgdUpdate part = whole;
      part.parameter = cpu.nan({length}, dtype);
      part.gradient = gradient.slice(begin, {length});
      cpu_backend().copy(fresh.slice(begin, {length}), part.parameter);
      if (o.momentum != 0) {
        part.momentum_buffer = cpu.nan({length}, statistics_type(dtype));
        cpu_backend().copy(buffer.slice(begin, {length}), part.momentum_buffer);
      }
      cpu_backend().sgd(part);
      same = same && same_bits(part.parameter, whole.parameter.slice(begin, {length}));
      if (o.momentum != 0)
        same =
            same && same_bits(part.momentum_buffer, whole.momentum_buffer.slice(begin, {length}));
    }
  }
  CHECK(same);
  CHECK_FALSE(same_bits(whole.parameter, fresh));
}

TEST_CASE("sgd with momentum but without a buffer is refused", "[tensor]") {
  Cpu cpu;
  SgdUpdate u = update_of(cpu, {}, Dtype::f32, 4);
  u.gradient = cpu.of({1, 1, 1, 1}, {4}, Dtype::f32);
  u.momentum = 0.9;
  CHECK_THROWS_AS(kernel::sgd(u), std::invalid_argument);
}

}  // namespace
