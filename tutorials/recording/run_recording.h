// The recorded step of all ranks of one training run, which may be threads or processes.
#pragma once

#include <memory>
#include <vector>

#include "tutorials/recording/step_json.h"
#include "tutorials/recording/step_recorder.h"

namespace zl::recording {

// Records the first kMostRecordedRanks ranks.
class RunRecording {
 public:
  explicit RunRecording(int ranks);
  RunRecording(const RunRecording&) = delete;  // the ranks' listeners hold its address
  RunRecording& operator=(const RunRecording&) = delete;

  // To be called on each rank before the first step.
  void at_start(Trainer& training);
  // To be called on each rank after each step. When the step to record has been made, brings the
  // recordings of all ranks to the process of rank 0, and returns true there on rank 0's thread.
  bool after_step(Trainer& training);

  // On the process of rank 0, when all ranks have ended or after_step() returned true: the recorded
  // step, or of a run that failed earlier what its ranks in this process have recorded.
  RecordedStep result() const;

 private:
  const int ranks_;
  std::string stage_;
  // By rank; each used by its rank's thread.
  std::vector<int64_t> steps_;  // the step to record
  std::vector<std::unique_ptr<StepRecorder>> recorders_;
  std::vector<RankRecording> collected_;
};

}  // namespace zl::recording
