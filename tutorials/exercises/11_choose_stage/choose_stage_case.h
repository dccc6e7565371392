// The machines and models of each check of exercise 11, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/11_choose_stage/choose_stage.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::choose_stage_checks {

struct ChoiceCase {
  Cluster cluster;
  Training training;
};
std::vector<ChoiceCase> choice_cases(const std::string& check, uint64_t seed);

// What a check asks for: one number for each case and stage; `choice`: one for each case.
enum class Asked { kept, peak, sent, seconds, choice };
Asked asked_by(const std::string& check);

// By the library: predict() of stages/predict/closed_form.h.
struct LibraryNumbers {
  std::vector<int64_t> units;                   // [n] with padding, root first
  int64_t kept = 0, peak = 0;                   // [B]
  int64_t reduced = 0, gathered = 0, sent = 0;  // [B] of a step; sent: both together
};
LibraryNumbers library_numbers(const Training& training, int stage);

}  // namespace zl::exercises::choose_stage_checks
