#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <limits>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("on the GPU block quantisation has the bits of the CPU, in every type", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int bits = GENERATE(8, 4);
  const int64_t n = GENERATE(2, 254, 256, 258, 1000);
  const double special = GENERATE(0.5, 1e-41, std::numeric_limits<double>::infinity());
  CAPTURE(name(dtype), bits, n, special);
  std::vector<double> values = random_values(3 * n, 1);
  values[size_t(n)] = special;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    Quantized q;
    q.bits = bits;
    q.codes = Tensor::empty(s.memory, MemoryUse::communication, {3, n * bits / 8}, Dtype::u8);
    q.scales = s.nan({3, (n + 255) / 256}, Dtype::f32);
    kernel::quantize(s.of(values, {3, n}, dtype), q);
    const Tensor sum = s.of(random_values(3 * n, 2), {3, n}, dtype);
    kernel::dequantize(q, sum, Write::add);
    const Tensor back = s.nan({3, n}, dtype);
    kernel::dequantize(q, back);
    kernel::divide(3, sum);
    std::vector<double> all = values_of(back);
    for (const Tensor& t : {sum, q.scales})
      for (const double v : values_of(t)) all.push_back(v);
    return all;
  });
  CHECK(same_bits(gpu, cpu));
  CHECK_FALSE(same_bits(gpu, std::vector<double>(gpu.size())));
}
