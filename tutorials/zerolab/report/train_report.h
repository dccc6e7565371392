// The report of a training run: a text for people, or one JSON document.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct TextSample {
  std::vector<int32_t> prompt, tokens;
  double temperature = 0;
  int64_t top_k = 0;
  std::string missing;  // why there are no tokens; "" if there are
};

struct TrainReport {
  const RunSetup& setup;
  const TrainingResult& result;
  const std::optional<RankReport>& dry;  // of --dry-run
  std::optional<TextSample> sample;
  std::vector<std::string> files;  // metrics, and weights if they were saved
  std::optional<LoadedCheckpoint> resumed;
  std::vector<CheckpointRecord> checkpoints;  // that were saved
  std::string page = {};                      // report.html; "" without --out
  std::vector<std::string> more_files = {};   // of --trace, of monitors
};

// A run that had no step left to make.
struct FinishedRun {
  std::string folder;  // of --resume
  int64_t step = 0, steps = 0;
};

std::string text_report(const TrainReport& report);
std::string json_report(const TrainReport& report);
std::string finished_report(const FinishedRun& run, bool json);

}  // namespace zl::cli
