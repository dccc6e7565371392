// The loss scale step by step, against DeepSpeed 0.19.8's DynamicLossScaler: the traces below are
// the results of that class for these outcomes ('.' a good step, 'x' an overflow).
#include "optim/loss_scaler.h"

#include <catch2/catch_test_macros.hpp>
#include <string_view>
#include <vector>

#include "tensor/error.h"

using namespace zl;

namespace {

// log2 of the scale after each step.
std::vector<int> trace(const LossScaleConfig& config, std::string_view outcomes) {
  LossScaler scaler(config);
  std::vector<int> powers;
  for (const char c : outcomes) {
    scaler.update(c == 'x');
    int power = 0;
    for (double s = scaler.scale(); s > 1; s /= 2) ++power;
    powers.push_back(power);
  }
  return powers;
}

constexpr std::string_view kOutcomes = "..x.xx....x......xxx....x.x..........x..";

}  // namespace

TEST_CASE("forty steps of the loss scale are DeepSpeed's in every setting (DS #7645)", "[optim]") {
  const std::pair<LossScaleConfig, std::vector<int>> recorded[] = {
      {{.window = 1000, .hysteresis = 2, .consecutive_hysteresis = false},
       {16, 16, 16, 16, 15, 14, 14, 14, 14, 14, 13, 13, 13, 13, 13, 13, 13, 12, 11, 10,
        10, 10, 10, 10, 9,  9,  8,  8,  8,  8,  8,  8,  8,  8,  8,  8,  8,  7,  7,  7}},
      {{.window = 4, .hysteresis = 2, .consecutive_hysteresis = false},
       {16, 16, 16, 16, 15, 14, 14, 14, 14, 14, 13, 13, 13, 13, 13, 14, 14, 14, 13, 12,
        12, 12, 12, 12, 11, 11, 10, 10, 10, 10, 10, 11, 11, 11, 11, 12, 12, 12, 12, 12}},
      {{.window = 4, .hysteresis = 2, .consecutive_hysteresis = true},
       {16, 16, 16, 16, 16, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 16, 16, 16, 15, 14,
        14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16, 16, 16, 16}},
      {{.window = 3, .hysteresis = 1, .consecutive_hysteresis = false},
       {16, 16, 15, 15, 14, 13, 13, 13, 13, 14, 13, 13, 13, 13, 14, 14, 14, 13, 12, 11,
        11, 11, 11, 12, 11, 11, 10, 10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 12, 12, 12}},
      {{.window = 5, .hysteresis = 3, .consecutive_hysteresis = false},
       {16, 16, 16, 16, 16, 15, 15, 15, 15, 15, 14, 14, 14, 14, 14, 14, 15, 15, 15, 14,
        14, 14, 14, 14, 13, 13, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 13, 13}},
      {{.window = 5, .hysteresis = 3, .consecutive_hysteresis = true},
       {16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 16,
        16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 17, 17, 17}}};
  for (const auto& [config, expected] : recorded) {
    CAPTURE(config.window, config.hysteresis, config.consecutive_hysteresis);
    CHECK(trace(config, kOutcomes) == expected);
  }
}

TEST_CASE("an overflow at the smallest scale ends the run with DeepSpeed's sentence (DS #1958)",
          "[optim]") {
  LossScaler scaler({.initial_scale_power = 1, .hysteresis = 1});
  scaler.update(true);
  CHECK(scaler.scale() == 1);
  CHECK_THROWS_AS(scaler.update(true), LossScaleExhausted);
  try {
    LossScaler at_floor({.initial_scale_power = 3, .hysteresis = 1, .min_scale = 8});
    at_floor.update(true);
    FAIL("no error");
  } catch (const LossScaleExhausted& e) {
    CHECK(std::string_view(e.what()).find("Current loss scale already at minimum - cannot decrease "
                                          "scale anymore. Exiting run.") != std::string_view::npos);
  }
}

TEST_CASE("a minimum that is not a power of two is reached and not left", "[optim]") {
  LossScaler scaler({.initial_scale_power = 3, .hysteresis = 1, .min_scale = 3});
  scaler.update(true);
  CHECK(scaler.scale() == 4);
  scaler.update(true);
  CHECK(scaler.scale() == 3);
  CHECK_THROWS_AS(scaler.update(true), LossScaleExhausted);
}

TEST_CASE(
    "a hysteresis below 1 never halves the scale, as DeepSpeed counts down from it to exactly 1",
    "[optim]") {
  CHECK(trace({.initial_scale_power = 5, .window = 4, .hysteresis = 0}, "xxx....xx.....x") ==
        std::vector<int>{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6});
  CHECK(trace({.initial_scale_power = 5, .hysteresis = -3, .consecutive_hysteresis = true},
              "xx.xxx") == std::vector<int>{5, 5, 5, 5, 5, 5});
}

TEST_CASE("a static scale never changes", "[optim]") {
  LossScaler scaler({.static_scale = 128, .window = 1});
  for (int i = 0; i < 5; ++i) scaler.update(i % 2 == 0);
  CHECK(scaler.scale() == 128);
}

TEST_CASE("settings that make no scale are refused", "[optim]") {
  CHECK_THROWS_AS(LossScaler({.static_scale = -1}), InputError);
  CHECK_THROWS_AS(LossScaler({.window = 0}), InputError);
  CHECK_THROWS_AS(LossScaler({.min_scale = 0}), InputError);
}
