// A kind of GPU of which nothing is measured.
#pragma once

#include "stages/predict/clock/machine.h"

namespace zl {

// `unmeasured` with its own peaks, and the shares of them that programs reach on `measured`.
//
// Matmuls and memory: the same shares. Attention spends a part of its time in matmuls, and the rest
// in the ordinary instructions of the softmax, whose rate is cores times clock (vector_rate). Both
// parts are carried over by their own rates, because the peak of matmuls grows faster from one kind
// to the next. Without vector_rate of both, attention has the same share too.
RankMachine with_shares_of(RankMachine unmeasured, const RankMachine& measured);

}  // namespace zl
