// The three terms of a collective from its measured times.
#pragma once

#include <span>

#include "stages/predict/clock/machine.h"

namespace zl {

struct TimedCall {
  int64_t bytes = 0;  // of the unsharded side
  double seconds = 0;
};

// The terms of at least 0 with the smallest sum of squares of relative errors, because the times of
// one table span five powers of ten. A term that is not needed is 0. Throws std::invalid_argument
// unless there are calls and all of their bytes and seconds are positive.
CollectiveTerms fit_terms(std::span<const TimedCall> calls, Collective collective, int ranks);

}  // namespace zl
