// The machines and models of each check of exercise 11, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/11_choose_stage/choose_stage.h"
#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises::choose_stage_checks {

inline constexpr char kKept[] = "between steps", kMixed[] = "mixed precision",
                      kPeak[] = "at the peak", kSent[] = "sent", kMicro[] = "several micro-batches",
                      kSeconds[] = "seconds", kChoice[] = "the choice", kExact[] = "to the byte";

struct ChoiceCase {
  Cluster cluster;
  Training training;
};
std::vector<ChoiceCase> choice_cases(const std::string& check, uint64_t seed);

// What a check asks for: one number for each case and stage; `choice`: one for each case.
enum class Asked { kept, peak, sent, seconds, choice };
Asked asked_by(const std::string& check);

// [B] By the library: predict() of stages/predict/closed_form.h.
struct LibraryNumbers {
  int64_t kept = 0, peak = 0, sent = 0;
};
LibraryNumbers library_numbers(const Training& training, int stage);

}  // namespace zl::exercises::choose_stage_checks
