// What an observer of exercise 02 calls and computes on a script: the right one, and ones with a
// typical mistake.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/02_final_gradient/script_case.h"

namespace zl::exercises::final_gradient_checks {

using Numbers = std::vector<double>;

// When the simulated observer calls ready(), and what it adds.
struct Behaviour {
  bool counts_evaluation = false, counts_again = false, counts_checkpointed = true;
  bool first_contribution = false;                            // is taken for the last
  bool every_micro_batch = false, first_micro_batch = false;  // instead of the last
  bool keeps_counts = false;                                  // to the next micro-batch
  bool keeps_finished = false;                                // to the next step
  bool only_complete = false, only_used_in_last = false, only_used = false;
  bool repeats = false;  // calls ready() whenever all expected contributions have come
  bool all_at_end = false, reversed_end = false;
  bool replaces = false;                 // each contribution replaces the sum
  bool replaces_in_micro_batch = false;  // the first one of each micro-batch does
  bool sums_steps = false;               // no step begins anew
  bool leaves_unused = false;            // a gradient without a contribution is not set to 0
};

struct Call {
  int event = -1, parameter = 0;
  Numbers gradient;
};

// The calls of ready() in order.
std::vector<Call> simulate(const Script& script, const Behaviour& behaviour = {});

struct Mistake {
  Behaviour behaviour;
  const char* meaning;
};
extern const std::vector<Mistake> kWrongCalls;   // mistakes that change when ready() is called
extern const std::vector<Mistake> kWrongValues;  // mistakes that change the gradients

// "contribution 1 of 2 to parameter 3, micro-batch 2 of 3, step 1"
std::string describe(const Script& script, int event);

}  // namespace zl::exercises::final_gradient_checks
