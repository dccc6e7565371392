// The arithmetic of reductions: order, division, rounding, and that all ways to a sum have the same
// bits.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "tests/dist/ranks.h"

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
