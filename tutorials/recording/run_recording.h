// The recorded step of all ranks of one training run, which may be threads or processes.
#pragma once

#include <memory>
#include <vector>

#include "stages/train/trainer.h"
#include "tutorials/recording/stage_reader.h"
#include "tutorials/recording/step_json.h"

namespace zl::recording {

// Further ranks run, and are not recorded.
inline constexpr int kMostRecordedRanks = 16;
// Of a step. Of several micro-batches the first ones and the last are recorded whole.
inline constexpr int64_t kMostRecordedEvents = 2'000;

// Records one step of a training run on one rank: the second that the run makes, which is in steady
// state, or the first if there is only one.
class StepRecorder {
 public:
  // Listens to the rank's stream from now on, before the run's first step. This object and
  // `training` must live until the stream's last event.
  explicit StepRecorder(Trainer& training);
  StepRecorder(const StepRecorder&) = delete;  // the listener holds its address
  StepRecorder& operator=(const StepRecorder&) = delete;

  // To be called after the step to record.
  void after_step();
  // What has been recorded so far: of a run that failed, the step in which it did. The rank may
  // have ended.
  RankRecording recording() const { return recorder_ ? recorder_->finish() : RankRecording(); }

 private:
  void see(const Event& event);
  void begin_data();
  void begin_step();
  bool keeps_micro_batch() const;
  void record(const Event& event);

  Trainer& training_;            // until after_step()
  const int64_t micro_batches_;  // A, of a step
  const int64_t last_;           // the step to record
  bool records_ = false;
  int64_t step_ = 0, updates_ = 0, micro_batch_ = 0;  // from 1, when it began, from 1
  int64_t of_first_ = 0;                              // events of the first micro-batch
  std::optional<StageReader> reader_;
  std::optional<RankRecorder> recorder_;
};

// Records one step of the first kMostRecordedRanks ranks: the second that the run makes, which is
// in steady state, or the first if there is only one.
class RunRecording {
 public:
  explicit RunRecording(int ranks);
  RunRecording(const RunRecording&) = delete;  // the ranks' listeners hold its address
  RunRecording& operator=(const RunRecording&) = delete;

  // To be called on each rank before the first step.
  void at_start(Trainer& training);
  // To be called on each rank after each step. When the step to record has been made, brings the
  // recordings of all ranks to the process of rank 0, and returns true there on rank 0's thread.
  // That is one call of all ranks, of those that are not recorded too; elsewhere it returns false.
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
