// Learning rates against numbers recorded from DeepSpeed, and clipping.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <sstream>

#include "optim/clip.h"
#include "tests/optim/recorded_schedules.h"

namespace zl {

TEST_CASE("every schedule has DeepSpeed's rates", "[optim]") {
  std::istringstream rates(kRecordedRates);
  for (const RecordedSchedule& recorded : kRecordedSchedules) {
    CAPTURE(recorded.called);
    int64_t off = 0, off_if_shifted = 0;
    for (int64_t k = 0; k < 20; ++k) {
      double expected = 0;
      REQUIRE(rates >> expected);
      off +=
          std::abs(learning_rate(recorded.config, 0.003, k) - expected) > 1e-15 * expected + 1e-19;
      off_if_shifted += std::abs(learning_rate(recorded.config, 0.003, k + 1) - expected) >
                        1e-15 * expected + 1e-19;
    }
    CHECK(off == 0);
    CHECK(off_if_shifted > 0);  // without DeepSpeed's off-by-one
  }
}

TEST_CASE("warm-up uses its minimum in steps 1 and 2", "[optim]") {
  ScheduleConfig s{.kind = GENERATE(ScheduleKind::warmup, ScheduleKind::warmup_decay),
                   .warmup_min_lr = 0.25,
                   .warmup_max_lr = 1,
                   .warmup_num_steps = 5,
                   .warmup_type = GENERATE(WarmupType::log, WarmupType::linear),
                   .total_num_steps = 20};
  CHECK(learning_rate(s, 9, 0) == 0.25);
  CHECK(learning_rate(s, 9, 1) == 0.25);
  CHECK(learning_rate(s, 9, 2) > 0.25);
  CHECK(learning_rate(s, 9, 6) == 1);
}

TEST_CASE("the constant schedule is the optimizer's rate", "[optim]") {
  for (int64_t updates : {0, 1, 2, 1000}) CHECK(learning_rate({}, 0.003, updates) == 0.003);
}

TEST_CASE("after its last step the cosine stays at its floor", "[optim]") {
  const ScheduleConfig s{.kind = ScheduleKind::warmup_cosine,
                         .warmup_num_steps = 3,
                         .total_num_steps = 10,
                         .cos_min_ratio = 0.1};
  for (int64_t updates = 10; updates < 40; ++updates)
    CHECK(std::abs(learning_rate(s, 2, updates) - 0.2) < 1e-15);
  CHECK(learning_rate(s, 2, 9) > 0.21);
  CHECK(learning_rate(s, 2, 0) == 0);
}

TEST_CASE("no schedule divides by zero or leaves its range, for any numbers of steps", "[optim]") {
  int64_t rates = 0, at_start = 0;
  for (const ScheduleKind kind :
       {ScheduleKind::warmup, ScheduleKind::warmup_decay, ScheduleKind::warmup_cosine}) {
    for (const WarmupType type : {WarmupType::log, WarmupType::linear}) {
      for (const int64_t warmup : {1, 2, 3, 10}) {
        for (const int64_t total : {1, 2, 3, 9, 10, 11, 50}) {  // below, at and above the warm-up
          const ScheduleConfig s{.kind = kind,
                                 .warmup_min_lr = 0.25,
                                 .warmup_max_lr = 2,
                                 .warmup_num_steps = warmup,
                                 .warmup_type = type,
                                 .total_num_steps = total};
          CAPTURE(int(kind), int(type), warmup, total);
          bool inside = true;
          for (int64_t updates = 0; updates < 70; ++updates, ++rates) {
            const double rate = learning_rate(s, 2, updates);
            inside = inside && std::isfinite(rate) && rate >= 0 && rate <= 2 * (1 + 1e-12);
            at_start += rate == 0.25;
          }
          CHECK(inside);
        }
      }
    }
  }
  CHECK(rates == 3 * 2 * 4 * 7 * 70);
  CHECK(at_start > 0);
}

TEST_CASE("clipping never scales up, and is off at 0", "[optim]") {
  CHECK(clip_factor(0.5, 1.0) == 1.0);  // exactly
  CHECK(clip_factor(0.0, 1.0) == 1.0);
  CHECK(clip_factor(1e-30, 1e-3) == 1.0);
  CHECK(clip_factor(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(clip_factor(1.0, 1.0) == 1.0 / (1.0 + 1e-6));  // torch's epsilon counts at the boundary
  CHECK(clip_factor(1e30, 0.0) == 1.0);
  CHECK(clip_factor(4.0, 1.0) * 4.0 < 1.0);
}

}  // namespace zl
