// A recorded step as the object "recordings" of report.json; tutorials/reference/reports.md
// describes it.
#pragma once

#include <string>
#include <vector>

#include "tutorials/recording/rank_recording.h"

namespace zl::recording {

struct RecordedStep {
  std::string stage;
  int ranks = 1;                     // of the run
  std::vector<RankRecording> shown;  // the first ranks, at least rank 0
};

// Only events that all shown ranks have. Empty if there are none. Times are of rank 0's clock and
// begin with its first event: those of a rank on another machine are shifted so that the median
// collective ends at the same time on both.
std::string step_json(const RecordedStep& step);
// What is not shown: "Of 64 ranks the first 16 are shown."
std::vector<std::string> left_out(const RecordedStep& step);

}  // namespace zl::recording
