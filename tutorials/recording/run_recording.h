// The recorded step of all ranks of one training run, which may be threads or processes, as an
// object of "recordings" in report.json. tutorials/reference/reports.md describes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl::recording {

// Further ranks run, and are not recorded.
inline constexpr int kMostRecordedRanks = 16;
// Of a step. Of several micro-batches the first ones and the last are recorded whole.
inline constexpr int64_t kMostRecordedEvents = 2'000;

struct RecordedStep {
  // Only events that all shown ranks have: phases, unit events, and begins and ends of collectives
  // of all ranks. "" if there are none, which is so where no rank has begun the step. Texts are
  // there once, and events name them by index; cells (what a rank holds of each unit) and memory
  // are there where they change; all of both at event 0. Of memory there are the uses that are
  // ever above 0 on a shown rank.
  //
  // Between two events the total of the device may have been higher than at both: `peaks` have the
  // first instant at which it was highest. `calls` have for each collective its two events, -1
  // where it began before or ended after the recording, and the times when the rank began to wait
  // for it, when the last rank had begun it, and when its data had moved.
  //
  // Times are in nanoseconds of rank 0's clock and begin with its first event. Ranks of one machine
  // share a clock; those of a rank on another machine are shifted so that the median collective
  // ends at the same time on both.
  std::string json;
  // What is not shown: "Of 64 ranks the first 16 are shown."
  std::vector<std::string> left_out;
};

// Records one step of the first kMostRecordedRanks ranks: the second that the run makes, which is
// in steady state, or the first if there is only one.
class RunRecording {
 public:
  explicit RunRecording(int ranks);
  ~RunRecording();
  RunRecording(const RunRecording&) = delete;  // the ranks' listeners hold its address
  RunRecording& operator=(const RunRecording&) = delete;

  // To be called on each rank before the first step; listens to the rank's stream from then on.
  // This object must live until the stream's last event, and `training` until the step that is
  // recorded has been made or the rank has ended.
  void at_start(Trainer& training);
  // To be called on each rank after each step. When the step to record has been made, brings the
  // recordings of all ranks to the process of rank 0, and returns true there on rank 0's thread.
  // That is one call of all ranks, of those that are not recorded too; elsewhere it returns false.
  bool after_step(Trainer& training);

  // On the process of rank 0, when all ranks have ended or after_step() returned true: the recorded
  // step, or of a run that failed earlier what its ranks in this process have recorded.
  RecordedStep result() const;
  // By rank, where after_step() has returned true: what the rank itself has recorded, as JSON. Its
  // events are its own, and so are its clock and its list of texts; memory has all series.
  const std::vector<std::string>& collected() const { return collected_; }

 private:
  class OfRank;
  std::string stage_;
  // By rank; each used by its rank's thread.
  std::vector<std::unique_ptr<OfRank>> recorders_;
  std::vector<std::string> collected_;
};

}  // namespace zl::recording
