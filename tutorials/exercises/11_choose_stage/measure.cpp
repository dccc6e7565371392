#include "tutorials/exercises/judge/measure.h"

#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"

namespace zl::exercises {
namespace {

using namespace choose_stage_checks;

double answer(Asked asked, const ChoiceCase& c, int stage) {
  switch (asked) {
    case Asked::kept: return double(kept_bytes(c.training, stage));
    case Asked::peak: return double(peak_bytes(c.training, stage));
    case Asked::sent: return double(sent_bytes(c.training, stage));
    case Asked::seconds: return step_seconds(c.cluster, c.training, stage);
    case Asked::choice: return double(choose_stage(c.cluster, c.training).value_or(-1));
  }
  return 0;
}

}  // namespace

// "answers": of all cases, each with the four stages, or one choice for each (-1: none).
Record measure(const CheckOptions& options) {
  Record record;
  std::vector<double>& answers = record.numbers["answers"];
  const Asked asked = asked_by(options);
  for (const ChoiceCase& c : choice_cases(options))
    for (int stage = 0; stage < (asked == Asked::choice ? 1 : 4); ++stage)
      answers.push_back(answer(asked, c, stage));
  return record;
}

}  // namespace zl::exercises
