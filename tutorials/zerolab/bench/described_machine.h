// A description of this machine for the clock (stages/predict/clock/machine.h), all of it measured.
#pragma once

#include <string>

#include "stages/predict/clock/machine.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

struct DescribeOptions {
  RunOptions run;      // --device, --quiet, --timeout
  std::string name;    // of the machine
  int cores = 1;       // that compute at the same time, if the ranks compute on the CPU
  int64_t array = 0;   // [B] of the arrays that measure the memory's bandwidth
  int samples = 7;     // of each rate
  bool quick = false;  // small models and few samples: a test that it runs, not how fast
};

// Throws Interrupted, InputError if the ranks' device cannot be used, and any error of a rank.
Machine describe_machine(const DescribeOptions& options);

}  // namespace zl::cli
