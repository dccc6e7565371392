// Every collective, type, number of ranks and awkward count against references written here.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <cstdlib>
#include <random>
#include <tuple>

#include "tests/dist/steps.h"

using namespace zl;
using namespace zl::test;

namespace {

// Half a unit in the last place of the type, relative.
template <class T>
constexpr double rounding = 0x1p-24;
template <>
constexpr double rounding<bf16> = 0x1p-8;
template <>
constexpr double rounding<f16> = 0x1p-11;
template <>
constexpr double rounding<double> = 0x1p-53;
template <>
constexpr double rounding<int32_t> = 0;

Step draw(std::mt19937& random, int ranks) {
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  return {.kind = Collective(below(7)),
          .slice = below(20) == 0 ? below(3000) : below(40),
          .root = below(ranks),
          .reduction = below(2) ? Reduction::mean : Reduction::sum,
          .seed = below(1 << 20)};
}

}  // namespace

using AnyType = std::tuple<float, bf16, f16, double, int32_t>;

TEMPLATE_LIST_TEST_CASE("every collective gives every rank what it should have, bit for bit",
                        "[dist]", AnyType) {
  const int ranks = GENERATE(from_range(ranks_up_to(8)));
  std::vector<std::string> wrong(size_t(ranks), "not said");
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        wrong[size_t(comm.rank())] = wrong_steps<TestType>(rank, kThreadSanitizer ? 5000 : 40'000);
      },
      within(std::chrono::seconds(60)));
  CHECK(wrong == std::vector<std::string>(size_t(ranks)));
}

// The reference is within rounding of the same sum in long double.
TEMPLATE_LIST_TEST_CASE("sums and means in rank order are right but for rounding", "[dist]",
                        AnyType) {
  constexpr double adding = std::is_same_v<TestType, double>    ? 0x1p-53
                            : std::is_same_v<TestType, int32_t> ? 0
                                                                : 0x1p-24;
  const int ranks = GENERATE(1, 2, 3, 8);
  const bool mean = GENERATE(false, true);
  if (mean && std::is_same_v<TestType, int32_t>) return;
  const Step step{.kind = Collective::all_reduce,
                  .reduction = mean ? Reduction::mean : Reduction::sum};
  const auto in = inputs<TestType>(ranks, 10'000, step.seed);
  const long double n = mean ? ranks : 1;
  for (size_t i = 0; i < in[0].size(); ++i) {
    long double sum = 0, size = 0;
    for (const auto& buffer : in)
      sum += (long double)(buffer[i]), size += std::abs((long double)(buffer[i]));
    const long double bound =
        (size * ranks * adding + std::abs(sum) * rounding<TestType>) / n * 1.01L +
        (std::is_same_v<TestType, f16> ? 0x1p-24L : 0);
    const auto result = (long double)(expected<TestType>(step, 0, ranks, int64_t(i)));
    if (!(std::abs(result - sum / n) <= bound)) FAIL(i);
  }
}

// ZEROLAB_RANDOM_COLLECTIVES says how many.
TEST_CASE("a random sequence of collectives does what each of them should", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  const char* wanted = std::getenv("ZEROLAB_RANDOM_COLLECTIVES");
  const int steps = (wanted ? std::atoi(wanted) : kThreadSanitizer ? 300 : 2000) / 5;
  CAPTURE(ranks, steps);
  std::vector<int> right(size_t(ranks), 0);
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        std::mt19937 random(uint32_t(1000 + ranks));  // the same on all ranks
        for (int i = 0; i < steps; ++i) {
          const Step step = draw(random, ranks);
          const bool ok = i % 4 == 0   ? take<bf16>(step, rank)
                          : i % 4 == 1 ? take<f16>(step, rank)
                          : i % 4 == 2 ? take<double>(step, rank)
                                       : take<float>(step, rank);
          right[size_t(comm.rank())] += ok;
        }
      },
      within(std::chrono::seconds(60)));
  CHECK(right == std::vector<int>(size_t(ranks), steps));
}
