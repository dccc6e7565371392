#include "tutorials/recording/run_recording.h"

#include <algorithm>
#include <string_view>

namespace zl::recording {
namespace {

// The second that the run makes, which is in steady state, or the first if there is only one.
int64_t step_to_record(const Trainer& training) {
  return std::min(training.steps() + 2, training.spec().steps);
}

}  // namespace

StepRecorder::StepRecorder(Trainer& training)
    : training_(training),
      micro_batches_(training.spec().engine.accumulation),
      last_(step_to_record(training)) {
  training.comm().events().listen([this](const Event& event) { see(event); });
}

void StepRecorder::see(const Event& event) {
  const bool data = event.kind == EventKind::phase && event.what == std::string_view("data");
  if (data) begin_data();
  if (records_) record(event);
}

// A step has as many data phases as micro-batches; then come evaluations.
void StepRecorder::begin_data() {
  const int64_t step = training_.steps();
  if (step != step_)
    records_ = step <= last_;
  else if (micro_batch_ == micro_batches_)
    records_ = false;
  if (!records_) return;
  if (step != step_) begin_step();
  if (++micro_batch_ == 2) of_first_ = int64_t(recorder_->recording().events.size());
  const bool keeps = keeps_micro_batch();
  recorder_->recording().left_out_micro_batches += !keeps;
  recorder_->keep(keeps);
}

void StepRecorder::begin_step() {
  step_ = training_.steps();
  updates_ = training_.engine().updates();
  micro_batch_ = 0;
  const Stage& stage = training_.engine().stage();
  const std::vector<Unit>& units = training_.model().units();
  reader_.emplace(training_.spec().engine.stage, stage, units);
  recorder_.emplace(&training_.memory(), &training_.host());
  RankRecording& recording = recorder_->recording();
  recording.step = step_;
  recording.micro_batches = micro_batches_;
  for (const Unit& unit : units) {
    const Partition& partition = stage.state(unit).partition;
    recording.units.push_back({partition.full(), partition.shard()});
  }
}

// The last one reduces more, and the update follows it.
bool StepRecorder::keeps_micro_batch() const {
  if (micro_batch_ == 1 || micro_batch_ == micro_batches_) return true;
  const auto recorded = int64_t(recorder_->recording().events.size());
  const auto units = int64_t(training_.model().units().size());
  return recorded + 2 * of_first_ + 8 * units + 20 <= kMostRecordedEvents;
}

void StepRecorder::record(const Event& event) {
  const char* method = reader_->at(event);
  if (reader_->resharded()) recorder_->set_method_of_last("reshard");
  if (int64_t(recorder_->recording().events.size()) == kMostRecordedEvents) recorder_->keep(false);
  recorder_->see(
      event, [this] { return reader_->rows(); }, method);
}

void StepRecorder::after_step() {
  records_ = false;
  if (training_.engine().updates() == updates_)  // the gradient was not finite
    recorder_->forget_method("update");
}

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
  const std::vector<std::string> all = comm.all_gather_object(
      rank < recorders_.size() ? encode(recorders_[rank]->recording()) : "", "recording");
  if (rank > 0) return false;
  collected_.clear();
  for (size_t r = 0; r < recorders_.size(); ++r) collected_.push_back(decode_recording(all[r]));
  return true;
}

RecordedStep RunRecording::result() const {
  RecordedStep step{.stage = stage_, .ranks = ranks_, .shown = collected_};
  if (!step.shown.empty()) return step;
  for (const auto& recorder : recorders_)
    if (recorder) step.shown.push_back(recorder->recording());
  return step;
}

}  // namespace zl::recording
