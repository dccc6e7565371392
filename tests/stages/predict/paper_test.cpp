// The ZeRO paper's own numbers: Rajbhandari et al. 2020 (arXiv:1910.02054).
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "stages/predict/closed_form.h"

using namespace zl;

namespace {

constexpr OptimizerBytes kMixedAdam{8, 4};  // fp32 moments and master weights: the paper's K = 12
constexpr int kRanks[] = {1, 4, 16, 64, 256, 1024};

struct TableRow {
  double parameters;
  StageKind stage;
  double gigabytes[6], digit[6];  // as printed, and one unit of the last printed digit
};

// Table 1, "per-device memory consumption of different optimizations in ZeRO-DP", GB = 1e9 bytes.
constexpr TableRow kTable1[] = {
    {7.5e9, StageKind::zero1, {120, 52.5, 35.6, 31.4, 30.4, 30.1}, {1, .1, .1, .1, .1, .1}},
    {7.5e9, StageKind::zero2, {120, 41.3, 21.6, 16.6, 15.4, 15.1}, {1, .1, .1, .1, .1, .1}},
    {7.5e9, StageKind::zero3, {120, 30, 7.5, 1.88, 0.47, 0.12}, {1, 1, .1, .01, .01, .01}},
    {128e9, StageKind::zero1, {2048, 896, 608, 536, 518, 513}, {1, 1, 1, 1, 1, 1}},
    {128e9, StageKind::zero2, {2048, 704, 368, 284, 263, 257}, {1, 1, 1, 1, 1, 1}},
    {128e9, StageKind::zero3, {2048, 512, 128, 32, 8, 2}, {1, 1, 1, 1, 1, 1}},
    {1e12, StageKind::zero1, {16000, 7000, 4750, 4187, 4046, 4011}, {1, 1, 1, 1, 1, 1}},
    {1e12, StageKind::zero2, {16000, 5500, 2875, 2218, 2054, 2013}, {1, 1, 1, 1, 1, 1}},
    {1e12, StageKind::zero3, {16000, 4000, 1000, 250, 62.5, 15.6}, {1, 1, 1, 1, .1, .1}},
};

double gigabytes(StageKind stage, double parameters, int ranks) {
  return model_states(stage, parameters, ranks, {2, 2, kMixedAdam}).total() / 1e9;
}

// The most parameters whose model states fit `bytes`: the total is linear in them.
double largest_model(StageKind stage, double bytes, int ranks) {
  return bytes / model_states(stage, 1, ranks, {2, 2, kMixedAdam}).total();
}

}  // namespace

TEST_CASE("the ZeRO paper's Table 1 comes out within one printed digit", "[stages]") {
  for (const TableRow& row : kTable1)
    for (int i = 0; i < 6; ++i) {
      CAPTURE(row.parameters, name(row.stage), kRanks[i], row.gigabytes[i]);
      CHECK(std::abs(gigabytes(row.stage, row.parameters, kRanks[i]) - row.gigabytes[i]) <
            row.digit[i]);
      // The twin: fp32's 4+4+8 bytes give other numbers wherever sharding leaves anything to see.
      if (row.stage == StageKind::zero1 && kRanks[i] > 1)
        CHECK(std::abs(model_states(row.stage, row.parameters, kRanks[i], {4, 4, {8, 0}}).total() /
                           1e9 -
                       row.gigabytes[i]) >= row.digit[i]);
    }
}

TEST_CASE("the ZeRO paper's Table 2 comes out: the largest model on 64 devices of 32 GB",
          "[stages]") {
  // Model parallelism multiplies each row; the paper multiplies what it printed for one slice.
  const double printed[] = {2, 7.6, 14.4, 128};
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    CHECK(std::abs(largest_model(stage, 32e9, 64) / 1e9 - printed[stage_number(stage)]) < 0.1);
  }
}

TEST_CASE("bytes per parameter of fp32 and of mixed precision are the published ones", "[stages]") {
  const auto per_parameter = [](StageKind stage, int ranks, int64_t element, OptimizerBytes o) {
    return model_states(stage, 1, ranks, {element, element, o}).total();
  };
  CHECK(per_parameter(StageKind::ddp, 1, 4, {8, 0}) == 16);
  CHECK(per_parameter(StageKind::ddp, 1, 4, {8, 4}) == 20);
  CHECK(per_parameter(StageKind::ddp, 1, 2, {8, 4}) == 16);
  const int ranks[] = {2, 4, 8};
  const double mixed[3][3] = {{10, 9, 8}, {7, 5.5, 4}, {5.5, 3.75, 2}},
               fp32[3][3] = {{12, 10, 8}, {10, 7, 4}, {9, 5.5, 2}};
  for (int i = 0; i < 3; ++i)
    for (int stage = 1; stage <= 3; ++stage) {
      CHECK(per_parameter(kStages[stage], ranks[i], 2, kMixedAdam) == mixed[i][stage - 1]);
      CHECK(per_parameter(kStages[stage], ranks[i], 4, {8, 0}) == fp32[i][stage - 1]);
    }
}

TEST_CASE("sent elements are 2, 2, 2 and 3 times (N-1)/N of the model, as section 7 says",
          "[stages]") {
  const double expected[] = {2, 2, 2, 3};
  for (const StageKind stage : kStages)
    CHECK(sent_elements({.stage = stage}, 1000, 4).total() == expected[stage_number(stage)] * 750);
  CHECK(sent_elements({.stage = StageKind::zero2, .accumulation = 3}, 1000, 4).total() == 4 * 750);
  CHECK(sent_elements({.stage = StageKind::zero3, .accumulation = 3}, 1000, 4).total() == 9 * 750);
}
