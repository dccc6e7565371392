// What the checks of exercises 05 to 07 share: a record, and the case that it was measured in.
#pragma once

#include "stages/predict/closed_form.h"
#include "tutorials/exercises/judge/judge.h"
#include "tutorials/exercises/stages/course_training.h"

namespace zl::exercises {

struct StageEvidence {
  StageEvidence();
  StageCase c = stage_case(options());
  Record seen = observe();
  bool exact = options().device == DeviceKind::cpu;  // the reference is computed there

  // What the stage must keep and send, by the closed formulas: nothing of the student's file is
  // used.
  std::vector<std::string> names;   // of the units
  std::vector<int64_t> full;        // [n] of each unit, padded
  OptimizerBytes optimizer;         // per element
  std::vector<SentRow> right_sent;  // of a rank in all steps

  // Of one rank: its calls of the stage file's functions, in order of time; what it sent in the
  // whole run.
  std::vector<StageCall> calls(int rank) const { return seen.rows<StageCall>(str("calls ", rank)); }
  std::vector<SentRow> sent(int rank) const { return seen.rows<SentRow>(str("sent ", rank)); }
};

// Losses, gradients, norms and weights against the plain loop, in the order in which they arise.
void check_bits(const StageEvidence& e);
// What each call allocates and frees, and so what a rank keeps and the peak, against the closed
// formulas.
void check_each_call(const StageEvidence& e);

}  // namespace zl::exercises
