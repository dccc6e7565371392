// Exercises 05 to 07, whose answer is one stage file: the checks, and how they are judged.
#pragma once

#include "stages/diagnosis/diagnosis.h"
#include "tutorials/exercises/grader/exercise.h"
#include "tutorials/exercises/stages/stage_calls.h"
#include "tutorials/exercises/stages/stage_case.h"

namespace zl::exercises {

// zero1, zero2 or zero3.
Exercise stage_exercise(StageKind stage);

// ---- What the judges share.

inline Verdict passed() { return {.passed = true, .meaning = "", .details = ""}; }

// A record and the case that it was measured in.
struct StageEvidence {
  const StageCase& c;
  const Record& record;
  bool exact = true;  // false: the student's code ran on another device than the reference
  // The values of rank r; throws InputError if the record has none.
  const std::vector<double>& of_rank(const char* what, int rank) const;
  std::vector<StageCall> calls(int rank) const;
};

// Losses, gradients, norms and weights against the plain loop, in the order in which they arise.
Verdict judge_bits(const StageEvidence& evidence);
// Memory between steps, at its peak, and what was sent, against the closed formulas.
Verdict judge_rest(const StageEvidence& evidence);
Verdict judge_peak(const StageEvidence& evidence);
Verdict judge_traffic(const StageEvidence& evidence);
// What each call allocates and frees.
Verdict judge_each_call(const StageEvidence& evidence);
// Whether a tensor was allocated for another use than it has.
Verdict judge_uses(const StageEvidence& evidence);

}  // namespace zl::exercises
