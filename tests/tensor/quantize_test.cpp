#include "tensor/platform/quantize.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr double kQuantizedInfinity = std::numeric_limits<double>::infinity();

struct Quantizer {
  explicit Quantizer(int b) : cpu(any_host_backend()), bits(b) {}
  Cpu cpu;
  int bits;
  Quantized of(const Tensor& x) {
    const int64_t groups = (x.dim(-1) + 255) / 256;
    Quantized q;
    q.bits = bits;
    q.codes = cpu.empty({x.rows(), x.dim(-1) * bits / 8}, Dtype::u8);
    q.scales = cpu.nan({x.rows(), groups}, Dtype::f32);
    kernel::quantize(x, q);
    return q;
  }
  Values there_and_back(const Values& values, Shape shape, Dtype dtype = Dtype::f32) {
    const Quantized q = of(cpu.of(values, shape, dtype));
    const Tensor back = cpu.nan(shape, dtype);
    kernel::dequantize(q, back);
    return doubles(back);
  }
};

}  // namespace

TEST_CASE("quantisation is wrong by at most half a scale, element by element", "[tensor]") {
  const int bits = GENERATE(8, 4);
  const int64_t n = GENERATE(2, 254, 256, 258, 1000);
  const double size = GENERATE(1.0, 1e-30, 3e38, 1e-41);
  CAPTURE(bits, n, size);
  Quantizer quantizer(bits);
  Values values = random_values(3 * n, 1);
  for (double& v : values) v = double(float(v * size));
  const Values back = quantizer.there_and_back(values, {3, n});
  const double steps = bits == 8 ? 127 : 7;
  double most = 0;
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t begin = 0; begin < n; begin += 256) {  // groups begin anew in each row
      const int64_t first = row * n + begin, last = row * n + std::min(n, begin + 256);
      double largest = 0;
      for (int64_t i = first; i < last; ++i)
        largest = std::max(largest, std::abs(values[size_t(i)]));
      const double scale = std::max(0x1p-126, largest / steps);
      for (int64_t i = first; i < last; ++i)
        most = std::max(most, std::abs(back[size_t(i)] - values[size_t(i)]) / scale);
    }
  CHECK(most <= 0.5 * (1 + 0x1p-15));
  if (n > 100 && size == 1.0) CHECK(most > 0.45);  // the twin: the bound is no larger than needed
}

TEST_CASE("whole multiples of a power of two survive quantisation bit for bit", "[tensor]") {
  const int bits = GENERATE(8, 4);
  const double unit = GENERATE(1.0, 0x1p-20, 0x1p30);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int steps = bits == 8 ? 127 : 7;
  Values values(1024);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = unit * double(int(i * 37 % size_t(2 * steps + 1)) - steps);
  Quantizer quantizer(bits);
  CHECK(quantizer.there_and_back(values, {2, 512}, dtype) == values);
  values[5] += unit / 4;  // the twin
  CHECK(quantizer.there_and_back(values, {2, 512}, Dtype::f32) != values);
}

TEST_CASE("two elements share a byte in 4 bits, the first in its low half", "[tensor]") {
  Quantizer quantizer(4);
  const Quantized q = quantizer.of(quantizer.cpu.of({7, -1, 2, -7}, {1, 4}, Dtype::f32));
  CHECK(q.codes.data<uint8_t>()[0] == 0xf7);
  CHECK(q.codes.data<uint8_t>()[1] == 0x92);
  CHECK(q.scales.data<float>()[0] == 1);
}

TEST_CASE("halves are rounded to even codes", "[tensor]") {
  Quantizer quantizer(8);
  CHECK(quantizer.there_and_back({127, 0.5, 1.5, 2.5, -0.5, -1.5}, {1, 6}) ==
        Values{127, 0, 2, 2, 0, -2});
}

TEST_CASE("a group with an element that is not finite comes back as nothing finite", "[tensor]") {
  const int bits = GENERATE(8, 4);
  const double bad = GENERATE(kQuantizedInfinity, -kQuantizedInfinity, std::nan(""));
  Values values = random_values(512, 2);
  values[300] = bad;
  Quantizer quantizer(bits);
  const Values back = quantizer.there_and_back(values, {1, 512});
  for (size_t i = 0; i < back.size(); ++i) {
    CAPTURE(i);
    CHECK(std::isfinite(back[i]) == (i < 256));  // the twin: the group before it is as it was
  }
}

TEST_CASE("dequantisation adds to what is there where it is asked to", "[tensor]") {
  Quantizer quantizer(4);
  const Quantized q = quantizer.of(quantizer.cpu.of({7, -1}, {1, 2}, Dtype::f32));
  const Tensor sum = quantizer.cpu.of({10, 20}, {1, 2}, Dtype::f32);
  kernel::dequantize(q, sum, Write::add);
  CHECK(doubles(sum) == Values{17, 19});
  kernel::dequantize(q, sum);
  CHECK(doubles(sum) == Values{7, -1});
}

TEST_CASE("quantisation refuses codes and scales of other sizes", "[tensor]") {
  Quantizer quantizer(8);
  const Tensor x = quantizer.cpu.of(random_values(512, 3), {2, 256}, Dtype::f32);
  Quantized q = quantizer.of(x);
  q.scales = quantizer.cpu.nan({1}, Dtype::f32);
  CHECK_THROWS_AS(kernel::quantize(x, q), std::invalid_argument);
  q = quantizer.of(x);
  q.bits = 4;
  CHECK_THROWS_AS(kernel::dequantize(q, x), std::invalid_argument);
}

TEST_CASE("divide rounds each quotient once, which a product with 1/3 does not", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const Tensor x = cpu.of({1, 5, 7, 11, -13}, {5}, dtype);
  kernel::divide(3, x);
  CHECK(doubles(x) ==
        doubles(cpu.of({1.0 / 3, 5.0 / 3, 7.0 / 3, 11.0 / 3, -13.0 / 3}, {5}, dtype)));
  CHECK(float(5) / 3 != float(5) * (1.0f / 3));
}
