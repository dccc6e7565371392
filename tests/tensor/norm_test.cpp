#include <catch2/catch_test_macros.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

double sum_of_squares(Cpu& cpu, const Tensor& x) {
  const Tensor out = cpu.nan({1}, Dtype::f64);
  kernel::sum_of_squares(x, out);
  return doubles(out)[0];
}

TEST_CASE("sum_of_squares agrees with a plain sum in long double", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  for (int64_t n : {0, 1, 15, 17, 1023, 1024, 1025, 5000, 70001}) {
    const Tensor x = cpu.of(random_values(n, 1), {n}, dtype);
    long double expected = 0;
    for (double v : doubles(x)) expected += static_cast<long double>(v) * v;
    CAPTURE(n);
    CHECK(std::abs(sum_of_squares(cpu, x) - double(expected)) <= 1e-15 * double(expected));
  }
}

TEST_CASE("zeros at the end change no bit of a sum of squares, whatever blocks they fill",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  for (int64_t n : {1, 5, 1000, 1024, 2500, 3 * 1024, 5 * 1024 + 7}) {
    const Values values = random_values(n, 3);
    const double sum = sum_of_squares(cpu, cpu.of(values, {n}, dtype));
    for (int64_t zeros : {1, 3, 16, 24, 500, 1024, 2048, 3001, 9 * 1024}) {
      Values padded = values;
      padded.resize(size_t(n + zeros), zeros % 2 ? 0.0 : -0.0);
      CAPTURE(n, zeros);
      CHECK(sum_of_squares(cpu, cpu.of(padded, {n + zeros}, dtype)) == sum);
    }
    Values touched = values;
    touched.push_back(0.5);
    CHECK(sum_of_squares(cpu, cpu.of(touched, {n + 1}, dtype)) != sum);
  }
}

TEST_CASE("squares that fp32 cannot hold are summed, and non-finite numbers stay non-finite",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  CHECK(sum_of_squares(cpu, cpu.of({1e30, 1e30}, {2}, Dtype::f32)) ==
        2 * double(1e30f) * double(1e30f));
  CHECK(sum_of_squares(cpu, cpu.of({1e-30}, {1}, Dtype::f32)) > 0);
  Values values(3000, 1);
  for (double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (size_t at : {0, 17, 1024, 2999}) {
      Values broken = values;
      broken[at] = bad;
      CHECK_FALSE(std::isfinite(sum_of_squares(cpu, cpu.of(broken, {3000}, Dtype::f16))));
    }
  }
}

// A shard that is a whole number of blocks has the blocks of the unsharded tensor.
TEST_CASE("squares_of_blocks has the sum of every 1,024 elements", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  for (const int64_t n : {0, 1, 1023, 1024, 1025, 5000}) {
    CAPTURE(n);
    const Values x = doubles(cpu.of(random_values(n, 1), {n}, dtype));
    const Tensor out = cpu.nan({(n + 1023) / 1024}, Dtype::f64);
    kernel::squares_of_blocks(cpu.of(x, {n}, dtype), out);
    for (int64_t b = 0; b < out.numel(); ++b) {
      const Values block(x.begin() + b * 1024, x.begin() + std::min(n, (b + 1) * 1024));
      CHECK(doubles(out)[size_t(b)] ==
            sum_of_squares(cpu, cpu.of(block, {int64_t(block.size())}, dtype)));
    }
  }
  const Tensor x = cpu.nan({1025}, Dtype::f32);
  CHECK_THROWS_AS(kernel::squares_of_blocks(x, cpu.nan({1}, Dtype::f64)), std::invalid_argument);
}

TEST_CASE("sums_of_squares has the sum of each tensor, and refuses a second type", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Tensor a = cpu.of({1, 2, 3}, {3}, Dtype::f32), b = cpu.of({5}, {1}, Dtype::f32),
               none = cpu.of({}, {0}, Dtype::f32), other = cpu.of({1}, {1}, Dtype::f64);
  const Tensor out = cpu.nan({3}, Dtype::f64);
  kernel::sums_of_squares(std::vector<Tensor>{a, none, b}, out);
  CHECK(doubles(out) == Values{14, 0, 25});
  CHECK_THROWS_AS(kernel::sums_of_squares(std::vector<Tensor>{a, b}, out), std::invalid_argument);
  CHECK_THROWS_AS(kernel::sums_of_squares(std::vector<Tensor>{a, b, other}, out),
                  std::invalid_argument);
}

}  // namespace
