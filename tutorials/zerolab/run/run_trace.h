// --trace and --memory-snapshot: the timeline and the memory of a run in files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/trace/trace_recorder.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/output_file.h"

namespace zl::cli {

struct TraceFiles {
  std::string timeline, memory;  // paths; "": none
  bool any() const { return !timeline.empty() || !memory.empty(); }
};

class RunTrace {
 public:
  // Throws InputError if a file exists, cannot be written, or is one of the files that --out will
  // hold, or the other one. Only the process of rank 0 `writes`.
  RunTrace(const TraceFiles& files, const std::string& out, int ranks, bool writes = true);
  RunTrace(const RunTrace&) = delete;  // the ranks' listeners hold its address
  RunTrace& operator=(const RunTrace&) = delete;

  // Throws InputError if a file exists, which another output may have created in the meantime.
  void require_new() const;

  // To be called on each rank before the first step and after the last one. The files have the
  // steps and the evaluations between them.
  void at_start(Trainer& training);
  void at_end(Trainer& training);  // rank 0 writes complete files or none

  // Why a file could not be written; "" if all were.
  const std::string& problem() const { return problem_; }
  std::vector<std::string> written() const;  // the files; none after a problem
  // "trace: run.json, for ui.perfetto.dev or chrome://tracing", and whether the files are cut. To
  // be called when all ranks have ended.
  std::string summary() const;

 private:
  using Writer = void (*)(const std::vector<RankTrace>&,
                          const std::function<void(std::string_view)>&);
  void write(OutputFile& file, const std::vector<RankTrace>& ranks, Writer writer);

  const TraceFiles files_;
  std::optional<OutputFile> timeline_, memory_;
  std::vector<TraceRecorder> ranks_;  // each used by its rank's thread only
  int64_t left_out_ = 0;              // events
  std::string problem_;
};

}  // namespace zl::cli
