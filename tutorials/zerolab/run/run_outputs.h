// The files of a training run: metrics, weights, trace. Checkpoints are written by the run itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"
#include "tutorials/zerolab/run/run_trace.h"

namespace zl::cli {

// Only the process of rank 0, the `first`, has the files open.
class RunOutputs {
 public:
  // Throws InputError if a file cannot be created, or --out holds another run.
  RunOutputs(const RunOptions& options, const RunSetup& setup, bool first);

  std::optional<RunTrace> trace;

  // These are to be called on rank 0: before the first step of a run that has made `steps`, after
  // each step, after each checkpoint. A full disk ends the metrics but not the run.
  void begin(int64_t steps);
  void append(const StepRecord& record);
  void saved(const CheckpointRecord& record);

  // To be called on all ranks; rank 0 writes model.safetensors, completely or not at all.
  void save_weights(Trainer& training);

  int64_t step() const { return step_; }  // the last one that was made, also before a resume
  int64_t made() const { return made_; }  // steps made now
  const std::vector<CheckpointRecord>& checkpoints() const { return checkpoints_; }
  // All steps made now were skipped, and not because a dynamic loss scale is still being found.
  bool untrained() const;

  std::vector<std::string> files() const;  // metrics, then weights
  // "runs/a/metrics.jsonl holds the steps so far, and no weights were written".
  std::string kept() const;
  // "add --resume to go on from runs/a/step-00000100", or "" if there is no checkpoint in --out.
  std::string way_on() const;
  // The first output that could not be written, in a sentence; "" if all were.
  std::string problem() const { return problem_.empty() && trace ? trace->problem() : problem_; }

 private:
  void note_problem_of_metrics();

  const RunOptions& options_;
  const bool in_place_;      // the run goes on in its folder
  const bool static_scale_;  // of fp16
  std::optional<RunFolder> folder_;
  std::optional<Metrics> metrics_;
  std::vector<CheckpointRecord> checkpoints_;
  int64_t step_ = 0, made_ = 0, skipped_ = 0;  // steps
  StepRecord last_;
  bool weights_saved_ = false;
  std::string problem_;
};

}  // namespace zl::cli
