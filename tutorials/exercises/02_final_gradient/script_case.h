// What each check of exercise 02 plays: events of some steps, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/02_final_gradient/final_gradient.h"
#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises::final_gradient_checks {

inline constexpr char kOnce[] = "each parameter used once", kTied[] = "tied weights",
                      kUnused[] = "unused parameters", kMicroBatches[] = "three micro-batches",
                      kEarly[] = "used in the first micro-batch only", kSteps[] = "three steps",
                      kEvaluation[] = "evaluation in between",
                      kCheckpointed[] = "checkpointed passes",
                      kNoGradient[] = "a branch without a gradient", kAll[] = "all of these";

struct Event {
  enum class Kind { begin_step, use, begin_backward, contribution, end_backward };
  Kind kind{};
  int parameter = 0;          // of a use or contribution
  Use use = Use::recorded;    // of a use
  bool last = false;          // of begin_backward
  std::vector<float> values;  // of a contribution: small integers
  int step = 0, micro_batch = 0;
};

struct Script {
  std::vector<int64_t> sizes;  // [n] by parameter
  int micro_batches = 1;
  std::vector<Event> events;
};

Script make_script(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises::final_gradient_checks
