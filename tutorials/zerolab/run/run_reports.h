// The reports that DeepSpeed's keys ask for: steps_per_print, wall_clock_breakdown, comms_logger,
// csv_monitor, tensorboard. They are made from event streams and step records and change nothing in
// a run. Rank 0 prints lines to stderr.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/trace/call_times.h"
#include "stages/train/phase_times.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/monitors/monitor_files.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

class RunReports {
 public:
  // Opens the files; throws InputError if that fails. With a null `progress` (-q) steps_per_print
  // prints nothing. Both arguments must outlive the run; finish() does not use `progress`. If not
  // `first`, rank 0 is in another process, and nothing is printed or written here.
  RunReports(const RunSetup& setup, Progress* progress, bool first = true);
  RunReports(const RunReports&) = delete;  // the ranks' listeners hold its address
  RunReports& operator=(const RunReports&) = delete;

  // To be called on each rank before the first step, on rank 0 after each, on each after the last.
  void at_start(Trainer& training);
  void on_step(const StepRecord& record);
  void at_end(Trainer& training);
  // To be called when all ranks have ended; prints the table of comms_logger.
  void finish();
  // The first file that could not be written to the end, in a sentence; "" if all were. A full disk
  // ends the file but not the run.
  const std::string& problem() const { return problem_; }
  std::vector<std::string> files() const;  // of the monitors, after the last step

 private:
  // Of one rank; used by its thread only until all have ended.
  struct Readers {
    std::optional<PhaseTimes> phases;
    std::optional<CallTimes> calls;
    bool counting = true;  // until the last step has ended
  };
  void print(const std::string& text) const;
  std::set<std::string> chosen_collectives() const;
  void monitor(const StepRecord& record, double next_lr, const std::optional<StepTimes>& times);

  const GptTrainingSpec& spec_;
  const Config& config_;
  Progress* progress_;
  std::vector<Readers> ranks_;
  const bool first_;
  std::vector<CallTimes::Calls>
      calls_;  // of all ranks, in the process of rank 0, after the last step
  std::optional<CsvFiles> csv_;
  std::optional<TensorboardFile> tensorboard_;
  std::string problem_;
  Trainer* rank0_ = nullptr;
  int64_t skipped_ = 0;
};

// "step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", in DeepSpeed's format.
std::string deepspeed_line(int64_t step, int64_t skipped, double lr,
                           const OptimizerConfig& optimizer);

}  // namespace zl::cli
