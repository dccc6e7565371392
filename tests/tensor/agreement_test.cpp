// The fast kernels of the CPU beside the reference. Where bits are promised they have its bits;
// elsewhere the tests of each kernel have tighter bounds than these.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <tuple>

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

namespace {

struct Sum {
  size_t ranks;
  bool mean, continues, unfinished;
  int64_t added = 0;
};

// The sum, into the first and the last of the buffers; an unfinished one into a buffer of its own.
// `swapped`: the ranks are in another order.
template <class T>
std::vector<std::vector<char>> ordered_sum(Backend& backend, const Sum& what,
                                           bool swapped = false) {
  constexpr int64_t n = 5000, begin = 3, end = n - 7;
  std::vector<std::vector<char>> buffers;
  for (size_t r = 0; r < what.ranks; ++r) {
    buffers.emplace_back(n * sizeof(OrderedSumType<T>));
    const Values values = random_values(n, swapped ? what.ranks - r : r + 1);
    for (int64_t i = 0; i < n; ++i) {
      const T value = std::is_integral_v<T> ? T(values[size_t(i)] * 2e9) : T(values[size_t(i)]);
      if (r == 0 && what.continues)
        reinterpret_cast<OrderedSumType<T>*>(buffers[r].data())[i] = OrderedSumType<T>(value);
      else
        reinterpret_cast<T*>(buffers[r].data())[i] = value;
    }
  }
  std::vector<char*> from;
  for (std::vector<char>& b : buffers) from.push_back(b.data());
  std::vector<char*> to{from.front(), from.back()};
  if (what.unfinished) to = {buffers.emplace_back(n * sizeof(OrderedSumType<T>)).data()};
  backend.ordered_sum({.buffers = from,
                       .results = to,
                       .begin = begin,
                       .end = end,
                       .dtype = dtype_of<T>,
                       .mean = what.mean,
                       .added = what.added,
                       .continues = what.continues,
                       .unfinished = what.unfinished});
  return buffers;
}

}  // namespace

using Types = std::tuple<float, bf16, f16, double, int32_t>;

TEMPLATE_LIST_TEST_CASE("a sum over ranks on the CPU has the bits of the reference", "[tensor]",
                        Types) {
  const bool mean = GENERATE(false, true);
  if (mean && std::is_integral_v<TestType>) return;
  for (const Sum& what :
       {Sum{2, mean, false, false}, Sum{3, mean, false, false}, Sum{5, mean, false, false, 7},
        Sum{1, mean, false, false, 3}, Sum{3, false, false, true}, Sum{4, mean, true, false, 6}}) {
    CAPTURE(what.ranks, mean, what.continues, what.unfinished);
    const auto expected = ordered_sum<TestType>(reference_backend(), what);
    CHECK(ordered_sum<TestType>(cpu_backend(), what) == expected);
    if (what.ranks > 2) CHECK(ordered_sum<TestType>(cpu_backend(), what, true) != expected);
  }
}
