// --trace: the timeline of a run in a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/trace/trace_recorder.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/output_file.h"

namespace zl::cli {

class RunTrace {
 public:
  // Throws InputError if `path` exists, cannot be written, or is one of the files that --out will
  // hold. Only the process of rank 0 `writes`.
  RunTrace(const std::string& path, const std::string& out, int ranks, bool writes = true);
  RunTrace(const RunTrace&) = delete;  // the ranks' listeners hold its address
  RunTrace& operator=(const RunTrace&) = delete;

  // To be called on each rank before the first step and after the last one. The trace has the steps
  // and the evaluations between them.
  void at_start(Trainer& training);
  void at_end(Trainer& training);  // rank 0 writes the complete file or nothing

  // Why the file could not be written; "" if it was.
  const std::string& problem() const { return problem_; }
  // "trace: run.json, for ui.perfetto.dev or chrome://tracing", and whether it is cut. To be called
  // when all ranks have ended.
  std::string summary() const;

 private:
  const std::string path_;
  std::optional<OutputFile> file_;
  std::vector<TraceRecorder> ranks_;  // each used by its rank's thread only
  int64_t left_out_ = 0;              // events
  std::string problem_;
};

}  // namespace zl::cli
