// The arithmetic of reductions: order, division, rounding, and that all ways to a sum have the same
// bits.
// Every collective, type, number of ranks and awkward count against references written here.

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstdlib>
#include <random>
#include <tuple>

#include "tests/dist/ranks.h"
#include "tests/dist/steps.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("reduce_scatter writes nothing but the own slice", "[dist]") {
  const auto in = inputs<float>(3, 33);
  const auto out = after<float>(in, [](Communicator& comm, const Tensor& t) {
    comm.reduce_scatter(t, Reduction::sum, kName).wait();
  });
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < 33; ++i) CHECK((out[r][i] == in[r][i]) == (i / 11 != r));
}

TEST_CASE("a sum in another order has other bits, so the equalities above compare something",
          "[dist]") {
  auto in = inputs<float>(4, 1009);
  const auto sum = [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::sum, kName).wait();
  };
  const auto forward = after<float>(in, sum);
  std::swap(in[0], in[3]);
  CHECK_FALSE(same_bits(after<float>(in, sum)[0], forward[0]));
}

TEST_CASE("the mean of 3 ranks is a division, not a product with a third", "[dist]") {
  const auto in = inputs<float>(3, 1009);
  const auto out = after<float>(in, [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::mean, kName).wait();
  });
  std::vector<float> divided, multiplied;
  for (size_t i = 0; i < 1009; ++i) {
    const float sum = in[0][i] + in[1][i] + in[2][i];
    divided.push_back(sum / 3.0f);
    multiplied.push_back(sum * (1.0f / 3.0f));
  }
  CHECK(same_bits(out[2], divided));
  CHECK_FALSE(same_bits(out[2], multiplied));
}

TEST_CASE("the mean of 8 tiny numbers rounds once", "[dist]") {
  const std::vector<float> tiny = {0x1p-149f, -0x1p-149f, 0x3p-149f, 0x1p-126f, -0.0f};
  const Buffers<float> in(8, tiny);
  const auto out = after<float>(in, [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::mean, kName).wait();
  });
  CHECK(same_bits(out[7], tiny));
}

TEST_CASE("f16 sums go through all kinds of numbers as tensor/dtype.h converts them", "[dist]") {
  Buffers<f16> in(2);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    f16 a, b;
    a.bits = uint16_t(bits);
    b.bits = uint16_t(bits * 40503u >> 3);
    if (std::isnan(float(a)) || std::isnan(float(b)))
      continue;  // which NaN comes out is not promised
    in[0].push_back(a), in[1].push_back(b);
  }
  auto expected = reduced(in, Reduction::sum);
  auto out = after<f16>(in, [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::sum, kName).wait();
  })[1];
  for (auto* v : {&expected, &out})
    for (f16& x : *v)
      if (std::isnan(float(x))) x.bits = 0x7e00;  // inf - inf; its sign is not promised
  CHECK(same_bits(out, expected));
}

TEST_CASE("integers wrap around as two's complement", "[dist]") {
  const Buffers<int32_t> in(2, {2147483647, -2147483647, 5});
  const auto out = after<int32_t>(in, [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::sum, kName).wait();
  });
  CHECK(out[0] == std::vector<int32_t>{-2, 2, 10});
}

TEMPLATE_TEST_CASE("sums that start with the sum before are one long sum in order", "[dist]", float,
                   bf16, f16, double) {
  const int ranks = GENERATE(1, 2, 3, 4, 5);
  const Collective kind = GENERATE(Collective::all_reduce, Collective::reduce_scatter);
  for (const int64_t odd : {1, 3, 211, 1013}) {
    const int64_t count = kind == Collective::all_reduce ? odd : odd * ranks;
    CAPTURE(ranks, name(kind), count);
    const auto in = inputs<TestType>(ranks, 3 * count);
    const auto run = [&](bool starts) {
      return after<TestType>(
          in, [&](Communicator& comm, const Tensor& t) { sum_thirds(comm, t, kind, starts); });
    };
    const auto out = run(true), expected = Buffers<TestType>{summed_thirds(in)};
    CHECK(last_third_is(expected[0], out, kind));
    // The twins: without the start, and the sum of three sums.
    CHECK_FALSE(last_third_is(expected[0], run(false), kind));
    if (ranks == 1 || odd < 211 || std::is_same_v<TestType, double>) continue;
    std::vector<TestType> of_sums;
    for (size_t i = 0; i < size_t(count); ++i) {
      float sum = 0;
      for (size_t part = 0; part < 3; ++part) {
        float part_sum = 0;
        for (const auto& values : in) part_sum += float(values[part * size_t(count) + i]);
        sum += part_sum;
      }
      of_sums.push_back(TestType(sum));
    }
    CHECK_FALSE(last_third_is(of_sums, out, kind));
  }
}

TEST_CASE("the first two thirds of such sums, which are starts, stay as they are", "[dist]") {
  const auto in = inputs<float>(3, 3 * 33);
  const auto out = after<float>(
      in, [](Communicator& comm, const Tensor& t) { sum_thirds(comm, t, Collective::all_reduce); });
  for (size_t i = 0; i < 33; ++i) {
    const float first = (in[0][i] + in[1][i]) + in[2][i];
    CHECK(out[1][i] == first);
    CHECK(out[1][33 + i] == ((first + in[0][33 + i]) + in[1][33 + i]) + in[2][33 + i]);
  }
}

TEST_CASE("a start that does not fit the sum is refused", "[dist]") {
  run_ranks(1, [](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1), other = rank.filled(7, 1),
                 type = rank.empty(8, Dtype::bf16);
    CHECK_THROWS_AS(comm.all_reduce(t, Reduction::sum, kName, other), std::invalid_argument);
    CHECK_THROWS_AS(comm.reduce_scatter(t, Reduction::sum, kName, type), std::invalid_argument);
    CHECK_THROWS_AS(comm.all_reduce(t, Reduction::mean, kName, t), std::invalid_argument);
  });
}

TEST_CASE("64 ranks on few cores reduce, gather and meet", "[dist]") {
  std::vector<int> right(64);
  run_ranks(
      64,
      [&](Communicator& comm) {
        Rank rank(comm);
        const Tensor t = rank.filled(64 * 3, float(comm.rank()));
        for (int i = 0; i < 20; ++i) {
          comm.all_reduce(t, Reduction::mean, kName).wait();
          comm.reduce_scatter(t, Reduction::mean, kName).wait();
          comm.all_gather(t, kName).wait();
          comm.barrier(kName).wait();
        }
        for (const float x : contents<float>(t)) right[size_t(comm.rank())] += x == 31.5f;
      },
      within(std::chrono::seconds(60)));
  CHECK(right == std::vector<int>(64, 64 * 3));
}

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
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  if (kThreadSanitizer && ranks != 3) return;
  std::vector<std::string> wrong(size_t(ranks), "not said");
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        wrong[size_t(comm.rank())] = wrong_steps<TestType>(rank, kThreadSanitizer ? 5000 : 10'000);
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
