// --trace: the timeline of a run in a file.
#pragma once

#include <string>
#include <vector>

#include "dist/trace/trace_recorder.h"
#include "stages/train/trainer.h"

namespace zl::cli {

class RunTrace {
 public:
  // Throws InputError if `path` cannot be written; without `writes` the rank 0 that does so is in
  // another process.
  RunTrace(std::string path, int ranks, bool writes = true);
  RunTrace(const RunTrace&) = delete;  // the ranks' listeners hold its address
  RunTrace& operator=(const RunTrace&) = delete;

  // Callbacks of run_training. Traced are the steps, and evaluations between them.
  void at_start(RankTraining& training);
  void at_end(RankTraining& training);  // rank 0 writes the file, whole or not at all

  // "trace: run.json, for ui.perfetto.dev or chrome://tracing", and whether it was cut. When the
  // ranks have ended.
  std::string summary() const;

 private:
  const std::string path_;
  std::vector<TraceRecorder> ranks_;  // each for its rank's thread alone
  int64_t left_out_ = 0;
};

}  // namespace zl::cli
