// The side of an exercise that runs the student's code, in a process that is not the grader's.
//
// Each exercise defines measure() once, in NN_name/measure.cpp. child_main.cpp calls it inside the
// sandbox and sends the record to the grader, which judges it. So the student's code never runs
// where it could change a verdict.
#pragma once

#include "tensor/memory.h"
#include "tutorials/exercises/grader/record.h"

namespace zl::exercises {

// Measuring and judging process derive the same sizes, ranks and data from it.
struct CheckOptions {
  uint64_t seed = 0;  // of the student, or the public one
  DeviceKind device = DeviceKind::cpu;
  // Shows the run on the terminal, from this event of rank 0 on; -1: does not.
  int64_t step_from = -1;
};

// Runs one check on the student's code. With step_from the record may be empty. What it throws
// reaches the grader as texts["error"].
Record measure(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises
