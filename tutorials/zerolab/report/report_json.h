// report.json: a run, or a plan, with the recorded step of each stage. The page report.html is made
// from it. tutorials/reference/reports.md describes it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutorials/recording/step_json.h"

namespace zl::cli {

// How a run came to an end before its last step. unknown: it was killed, or it still runs.
enum class RunEnd { failed, interrupted, unknown };

struct RunFailure {
  std::string message;
  int64_t after_step = 0;  // the last that was made
  RunEnd end = RunEnd::failed;
};

struct RunReport {
  std::string kind;              // "compare", "train", "plan"
  std::string device, settings;  // text
  std::string document = {};     // what --json prints; "" if the run did not end
  std::optional<RunFailure> failure = {};
  int64_t steps_asked = 0;
  // Of each stage that made a step: lines of metrics.jsonl.
  std::vector<std::pair<std::string, std::vector<std::string>>> metrics = {};
  std::vector<recording::RecordedStep> recordings = {};
  std::vector<std::string> left_out = {};  // sentences beside those of the recordings
};

std::string report_json(const RunReport& report);

// The same report with the steps of `metrics`, the lines of metrics.jsonl, and, where neither an
// end nor a failure is recorded, with a failure that says so. Throws InputError that names the file
// if the text is no report of this schema. The page says so where parts of it are damaged.
std::string continued_report(const std::string& report_json, const std::string& path,
                             const std::optional<std::vector<std::string>>& metrics);

}  // namespace zl::cli
