#include "tutorials/recording/run_recording.h"

#include <algorithm>

namespace zl::recording {

RunRecording::RunRecording(int ranks)
    : ranks_(ranks),
      steps_(size_t(ranks)),
      recorders_(size_t(std::min(ranks, kMostRecordedRanks))) {}

void RunRecording::at_start(Trainer& training) {
  const auto rank = size_t(training.comm().rank());
  steps_[rank] = step_to_record(training);
  if (rank == 0) stage_ = name(training.spec().engine.stage);
  if (rank < recorders_.size()) recorders_[rank] = std::make_unique<StepRecorder>(training);
}

bool RunRecording::after_step(Trainer& training) {
  Communicator& comm = training.comm();
  const auto rank = size_t(comm.rank());
  if (training.steps() != steps_[rank]) return false;
  if (rank < recorders_.size()) recorders_[rank]->after_step();
  std::vector<RankRecording> all;
  for (size_t r = 0; r < recorders_.size(); ++r) {
    const std::vector<std::string> parts =
        comm.all_gather_object(r == rank ? encode(recorders_[r]->recording()) : "", "recording");
    if (rank == 0) all.push_back(decode_recording(parts[r]));
  }
  if (rank == 0) collected_ = std::move(all);
  return rank == 0;
}

RecordedStep RunRecording::result() const {
  RecordedStep step{.stage = stage_, .ranks = ranks_, .timed = true, .shown = collected_};
  if (!step.shown.empty()) return step;
  for (const auto& recorder : recorders_)
    if (recorder) step.shown.push_back(recorder->recording());
  return step;
}

}  // namespace zl::recording
