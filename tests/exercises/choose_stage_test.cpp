// The judge of exercise 11: what it expects is the planner's, and what its checks find.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "stages/predict/plan.h"
#include "stages/train/gpt_spec.h"
#include "tutorials/exercises/11_choose_stage/numbers.h"

namespace zl::exercises::choose_stage_checks {
namespace {

constexpr const char* kChecks[] = {kKept, kMixed, kPeak, kSent, kMicro, kSeconds, kChoice, kExact};

// Calls `visit` for each number that a check asks for; true if it returns true for one.
template <typename Visit>
bool any_number(const char* check, uint64_t seed, const Visit& visit) {
  const Asked asked = asked_by(check);
  for (const ChoiceCase& c : choice_cases(check, seed))
    for (int stage = 0; stage < (asked == Asked::choice ? 1 : 4); ++stage)
      if (visit(c, stage)) return true;
  return false;
}

bool is_of_model(MemoryUse use) {
  return use == MemoryUse::parameter || use == MemoryUse::gradient ||
         use == MemoryUse::optimizer_state || use == MemoryUse::master_weights;
}

}  // namespace

TEST_CASE("the rules of exercise 11 give the library's numbers", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks) {
      CAPTURE(seed, check);
      const Asked asked = asked_by(check);
      CHECK_FALSE(any_number(check, seed, [&](const ChoiceCase& c, int stage) {
        return !equal(number(asked, c, stage), right_number(asked, c, stage));
      }));
    }
}

// The twin, for every student.
TEST_CASE("the checks of exercise 11 find each mistake that has a diagnosis", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const Mistake& mistake : kMistakes) {
      CAPTURE(seed, mistake.meaning);
      CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
        return asked_by(check) == mistake.asked &&
               any_number(check, seed, [&](const ChoiceCase& c, int stage) {
                 return !equal(number(mistake.asked, c, stage, mistake.slip),
                               right_number(mistake.asked, c, stage));
               });
      }));
    }
}

// A dry run of the stages themselves.
TEST_CASE("the planner's dry run measures the numbers of exercise 11", "[exercises]") {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  spec.ranks = 1;
  spec.engine.reduce_bucket_size = 1;
  Training training{.ranks = 3, .units = prediction_input(spec).units, .micro_batches = 2};
  spec.ranks = 3;
  spec.engine.accumulation = 2;
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const StagePlan plan = plan_stage(spec, StageKind(stage), 0);
    int64_t kept = 0, peak = 0, sent = 0;
    for (const MemoryRow& row : plan.memory)
      if (is_of_model(row.use)) kept += row.rest, peak += row.peak;
    for (const TrafficRow& row : plan.traffic)
      if (row.purpose == Purpose::gradient || row.purpose == Purpose::parameter)
        sent += row.predicted_sent;
    const ChoiceCase c{{}, training};
    CHECK(number(Asked::kept, c, stage) == double(kept));
    CHECK(number(Asked::peak, c, stage) == double(peak));
    CHECK(number(Asked::sent, c, stage) == double(sent));
    CHECK(number(Asked::kept, c, stage, Slip::twelve_in_fp32) != double(kept));
  }
}

// The table in task.md, and why a choice is needed: a later stage may take more.
TEST_CASE("the task of exercise 11 shows the library's numbers", "[exercises]") {
  const Training training{.ranks = 2, .units = {70, 100, 33}, .micro_batches = 2};
  const int64_t kept[] = {4608, 3456, 2880, 2304}, peak[] = {4608, 3456, 3776, 4096},
                sent[] = {1152, 1152, 1728, 3072};
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const LibraryNumbers numbers = library_numbers(training, stage);
    CHECK(numbers.kept == kept[stage]);
    CHECK(numbers.peak == peak[stage]);
    CHECK(numbers.sent == sent[stage]);
  }
  ChoiceCase c{{.memory = 3776, .node_bandwidth = 1, .network_bandwidth = 1, .rate = 1}, training};
  CHECK(right_number(Asked::choice, c, 0) == 1);
  c.cluster.memory = 3455;
  CHECK(right_number(Asked::choice, c, 0) == -1);
  c.cluster.memory = 4608;
  CHECK(right_number(Asked::choice, c, 0) == 0);
}

}  // namespace zl::exercises::choose_stage_checks
