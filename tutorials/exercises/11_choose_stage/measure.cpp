#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"

namespace zl::exercises {

// "answers": of all cases, each with the four stages, or one choice for each (-1: none).
Record measure(const CheckOptions& options) {
  Record record;
  for (const auto& [cluster, training] : choose_stage_checks::choice_cases(options))
    for (int stage = 0; stage < 4; ++stage) {
      const auto is = [&](const char* name) { return options.is(name); };
      const bool choice = choose_stage_checks::asks_for_choice(options);
      if (choice && stage > 0) continue;
      record.numbers["answers"].push_back(choice ? choose_stage(cluster, training).value_or(-1)
                                          : is("seconds") ? step_seconds(cluster, training, stage)
                                          : is("at the peak") ? double(peak_bytes(training, stage))
                                          : is("sent") || is("several micro-batches")
                                              ? double(sent_bytes(training, stage))
                                              : double(kept_bytes(training, stage)));
    }
  return record;
}

}  // namespace zl::exercises
