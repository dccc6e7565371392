// What DeepSpeed's keys ask to be told beside a run: steps_per_print, wall_clock_breakdown,
// comms_logger, csv_monitor.
//
// All of it is read from the event streams and step records; nothing of it changes a run. Lines go
// to stderr, from rank 0.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/trace/call_times.h"
#include "stages/train/csv_files.h"
#include "stages/train/phase_times.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {

class RunReports {
 public:
  // Opens what is to be written; throws InputError. `progress` may be null (-q): then
  // steps_per_print is silent too, while what was asked for by name is still said. Both must
  // outlive the run; finish() does not use `progress`. Without `first` rank 0 is in another
  // process: nothing is said or written here.
  RunReports(const TrainingSpec& spec, Progress* progress, bool first = true);
  RunReports(const RunReports&) = delete;  // the ranks' listeners hold its address
  RunReports& operator=(const RunReports&) = delete;

  // The callbacks of run_training.
  void at_start(RankTraining& training);
  void on_step(const StepRecord& record);
  void at_end(RankTraining& training);
  // After all ranks have made every step.
  void finish();

 private:
  // Of one rank, on whose thread alone it is used until all have ended.
  struct Readers {
    std::optional<PhaseTimes> phases;
    std::optional<CallTimes> calls;
    bool counting = true;  // until the last step has ended
  };
  void say(const std::string& text) const;
  std::set<std::string> chosen_collectives() const;
  void write_csv(const StepRecord& record, double next_lr, const std::optional<StepTimes>& times);

  const TrainingSpec& spec_;
  const Config& config_;
  Progress* progress_;
  std::vector<Readers> ranks_;
  const bool first_;
  std::vector<CallTimes> calls_;  // of all ranks, at the end; on the process of rank 0
  std::optional<CsvFiles> csv_;
  RankTraining* rank0_ = nullptr;
  int64_t skipped_ = 0;
};

// "step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", as DeepSpeed says it.
std::string deepspeed_line(int64_t step, int64_t skipped, double lr,
                           const OptimizerConfig& optimizer);

}  // namespace zl::cli
