// What the checks of exercises 05 to 07 share: a record, and the case that it was measured in.
#pragma once

#include "tutorials/exercises/judge/judge.h"
#include "tutorials/exercises/stages/course_training.h"
#include "tutorials/exercises/stages/stage_calls.h"

namespace zl::exercises {

struct StageEvidence {
  StageCase c = stage_case(check_name(), options());
  Record seen = observe();
  bool exact = options().device == DeviceKind::cpu;  // the reference is computed there

  const std::vector<double>& of_rank(const char* what, int rank) const {
    return seen.list(str(what, " ", rank));
  }
  std::vector<StageCall> calls(int rank) const { return calls_from(of_rank("calls", rank)); }
};

// Fails where a call of rank 0 allocates a tensor for another use of memory than it has.
void check_uses(const StageEvidence& e);
// Losses, gradients, norms and weights against the plain loop, in the order in which they arise.
void check_bits(const StageEvidence& e);

}  // namespace zl::exercises
