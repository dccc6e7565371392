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
  // Throws InputError if the file exists, cannot be written, or is one of those that --out will
  // hold. Only the process of rank 0 `writes`.
  RunTrace(const std::string& path, const std::string& out, int ranks, bool writes = true);
  RunTrace(const RunTrace&) = delete;  // the ranks' listeners hold its address
  RunTrace& operator=(const RunTrace&) = delete;

  // Throws InputError if the file exists, which another output may have created in the meantime.
  void require_new() const;

  // To be called on each rank before the first step and after the last one. The file has the steps
  // and the evaluations between them.
  void at_start(Trainer& training);
  void at_end(Trainer& training);  // rank 0 writes a complete file or none

  // Why the file could not be written; "" if it was.
  const std::string& problem() const { return problem_; }
  std::vector<std::string> written() const;  // the file; none after a problem
  // "trace: run.json, for ui.perfetto.dev or chrome://tracing", and whether it is cut. To be called
  // when all ranks have ended.
  std::string summary() const;

 private:
  void write(const std::vector<RankTrace>& ranks);

  const std::string path_;
  std::optional<OutputFile> file_;
  std::vector<TraceRecorder> ranks_;  // each used by its rank's thread only
  int64_t left_out_ = 0;              // events
  std::string problem_;
};

}  // namespace zl::cli
