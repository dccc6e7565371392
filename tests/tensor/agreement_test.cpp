// The fast kernels of the CPU beside the reference. Where bits are promised they have its bits;
// elsewhere the tests of each kernel have tighter bounds than these. Sums over ranks:
// tests/cuda/ordered_sum_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/tensor/kernel_cases.h"

namespace {

using namespace zl;
using namespace zl::test;
using namespace zl::test::kernel_cases;

// Roundings to the storage type, and of sums of up to 515 terms in the compute type.
double allowed(const Tensor& expected) {
  const double eps = epsilon(expected.dtype()) + 128 * compute_epsilon(expected.dtype());
  return 2 * eps * (1 + size_of_values(doubles(expected)));
}

}  // namespace

TEST_CASE("every kernel of the CPU agrees with the reference, bit for bit where that is promised",
          "[tensor]") {
  const bool large = GENERATE(false, true);
  for (const Dtype dtype : kTypes) {
    for (const KernelCase& c : kCases) {
      Cpu cpu, reference(reference_backend());
      const std::vector<Tensor> fast = c.outputs({cpu, dtype, large}),
                                expected = c.outputs({reference, dtype, large}),
                                other = c.outputs({reference, dtype, large, 0, 1000});
      REQUIRE(fast.size() == expected.size());
      for (size_t i = 0; i < fast.size(); ++i) {
        CAPTURE(name(dtype), c.name, large, i);
        if (c.bits)
          CHECK(same_bits(fast[i], expected[i]));
        else
          CHECK(largest_difference(doubles(fast[i]), doubles(expected[i])) <= allowed(expected[i]));
      }
      CHECK_FALSE(same_bits(fast.back(), other.back()));
    }
  }
}
