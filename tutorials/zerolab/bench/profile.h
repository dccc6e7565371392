// Where a step's time goes: each kernel, and what is outside of all kernels.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/bench/backend.h"
#include "tutorials/zerolab/bench/bench_progress.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/sweep.h"

namespace zl::cli {

// Of steps of ddp on one rank, which communicate nothing.
struct KernelProfile {
  int64_t steps = 0;
  std::vector<KernelTotal> kernels;  // of all steps together
  Spread seconds;                    // of a step
  double total = 0;                  // [s] of all steps
  Spread outside;                    // share of a step: tape, events, ledger, checks, and the clock
  double clock = 0;                  // [s] that reading the clock adds to a step, all of it outside
  int64_t untimed = 0;  // calls of kernels that are unknown to this, and count as outside
};

// The CPU's. Takes options.warm_up + options.timed steps.
KernelProfile profile_kernels(const StepPoint& point, const StepOptions& options,
                              BenchProgress& progress);

// `operation_rate`: [1/s] what a core can do.
std::string profile_text(const KernelProfile& profile, double operation_rate);

}  // namespace zl::cli
