// What each check of exercise 02 plays: events of some steps, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/02_final_gradient/final_gradient.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::final_gradient_checks {

struct Event {
  enum class Kind { begin_step, use, begin_backward, contribution, end_backward };
  Kind kind{};
  int step = 0, micro_batch = 0;
  bool last = false;          // of the step's micro-batches
  int parameter = 0;          // of a use or contribution
  Use use = Use::recorded;    // of a use
  std::vector<float> values;  // of a contribution: small integers
};

struct Script {
  std::vector<int64_t> sizes;  // [n] by parameter
  int micro_batches = 1;
  std::vector<Event> events;
};

Script make_script(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises::final_gradient_checks
