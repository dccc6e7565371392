// Shares of peaks that are carried over from one kind of GPU to another.
#include "stages/predict/clock/spec_sheet.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace zl;

namespace {

RankMachine gpu(double half_flops, double vector_rate, double matmul, double attention) {
  RankMachine rank;
  rank.memory_bandwidth = half_flops / 200;
  rank.half_flops = half_flops;
  rank.vector_rate = vector_rate;
  rank.matmul = {{0, matmul}};
  rank.memory = {{0, 0.5}};
  rank.attention = attention;
  return rank;
}

}  // namespace

TEST_CASE("the softmax is carried over by the rate of ordinary instructions", "[stages]") {
  // At the old peak attention takes 4 per operation: 1.25 in matmuls, 2.75 in the softmax. The new
  // kind has 3 times the peak and 1.5 times the instructions, so the softmax takes 5.5.
  const RankMachine old = gpu(100e12, 10e12, 0.8, 0.25), fresh = gpu(300e12, 15e12, 1, 1);
  const RankMachine carried = with_shares_of(fresh, old);
  CHECK(carried.attention == Catch::Approx(1 / (1.25 + 5.5)));
  CHECK(carried.matmul.front().share == 0.8);
  CHECK(carried.memory.front().share == 0.5);
  CHECK(carried.half_flops == 300e12);  // the peaks stay its own
  CHECK(carried.memory_bandwidth == 1.5e12);

  RankMachine unknown = fresh;
  unknown.vector_rate = 0;
  CHECK(with_shares_of(unknown, old).attention == 0.25);
}

TEST_CASE("a kind that grows in all rates alike has the same shares", "[stages]") {
  const RankMachine old = gpu(100e12, 10e12, 0.8, 0.25);
  CHECK(with_shares_of(gpu(200e12, 20e12, 1, 1), old).attention == Catch::Approx(0.25));
  CHECK(with_shares_of(gpu(200e12, 10e12, 1, 1), old).attention < 0.2);
}
