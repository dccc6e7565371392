// A run of the odd model whose last step is recorded, beside what the test itself saw of that step.
#pragma once

#include <string>
#include <vector>

#include "tests/stages/stage_run.h"
#include "tutorials/recording/run_recording.h"

namespace zl::test {

// Calls of functions of the stage, each as "UNIT FUNCTION".
using CallsSeen = std::vector<std::string>;

// For each unit: '#' full, '/' shard, '.' nothing, of parameter, gradient and optimizer state.
using HeldSeen = std::vector<std::string>;

struct RecordedRun {
  recording::RecordedStep step;
  std::vector<std::string> of_ranks;  // what each recorded, as JSON
  TrainingResult result;
  std::vector<CallsSeen> calls;             // by rank, in the recorded step
  std::vector<std::vector<HeldSeen>> held;  // by rank and event of the recorded step
};

// `recorded_as`: the stage that the recording believes to see.
RecordedRun record(StageRunSpec spec, StageKind recorded_as);
inline RecordedRun record(const StageRunSpec& spec) { return record(spec, spec.stage); }

// The calls that the methods of the recorded events name, those of each unit in order. `recorded`:
// the JSON of a rank or of a step.
CallsSeen named_calls(const std::string& recorded);
// `calls` in the order of units; of one unit in the order of the calls.
CallsSeen by_unit(CallsSeen calls);

}  // namespace zl::test
