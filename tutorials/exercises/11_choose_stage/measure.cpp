#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"

namespace zl::exercises {

// "answers": of each choice the number that the check asks for, or the stage (-1: none).
Record measure(const CheckOptions& options) {
  Record record;
  for (const auto& c : choose_stage_checks::choices(options))
    record.numbers["answers"].push_back(
        choose_stage_checks::asks_for_choice(options) ? choose_stage(c.cluster, c.t).value_or(-1)
        : options.is("seconds")                       ? step_seconds(c.cluster, c.t, c.stage)
        : options.is("at the peak")                   ? double(peak_bytes(c.t, c.stage))
        : options.is("sent") || options.is("several micro-batches")
            ? double(sent_bytes(c.t, c.stage))
            : double(kept_bytes(c.t, c.stage)));
  return record;
}

}  // namespace zl::exercises
