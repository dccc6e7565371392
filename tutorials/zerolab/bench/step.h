// What 'zerolab bench step' measures: rows, each a stage at some number of ranks, in rounds that
// take each row once.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/bench/bench_progress.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/profile.h"
#include "tutorials/zerolab/bench/sweep.h"

namespace zl::cli {

// Who trains in a row: the ranks of one stage, or as many that each train alone, at the same time.
struct StepKind {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  bool independent = false;
  const char* name() const { return independent ? "independent" : zl::name(stage); }
};

struct StepRow {
  const StepPoint* point;  // the model and the settings
  StepKind kind;
  std::string out_of_memory = {};                // why it did not run; then nothing below is set
  std::vector<std::vector<double>> rounds = {};  // [s] of the timed steps of each
  int64_t tokens = 0;                            // of a step, of all ranks
  double operations = 0;                         // of a step, of all ranks
  double share = 0;                              // of what all places together can do
  std::vector<int64_t> peak = {};                // [B] by rank, device and host pool together
  double page_faults = 0;  // of a timed step, of the whole process: the most of the rounds
  std::optional<double> system_allocations =
      {};  // of a timed step: blocks that all ranks took from the system; as above
  std::optional<int64_t> peak_resident = {};  // [B] of the whole process: the most of the rounds
  int64_t resident_before = 0;                // [B] in that round, before it began

  bool ran() const { return out_of_memory.empty(); }
  Spread seconds() const;  // of all timed steps
  // How many times as long it takes as `other`: of the medians of each round, in which both were
  // measured.
  Spread relative_to(const StepRow& other) const;
};

struct StepReport {
  const StepOptions& options;
  std::vector<StepPoint> points;
  double operation_rate = 0;  // [1/s] of one place
  std::vector<StepRow> rows;
  std::optional<KernelProfile> profile;

  const RunSetup& setup() const { return points.front().setup; }
  // The row of ddp, or of independent ranks, beside a row with as many ranks as were asked for;
  // null if it did not run.
  const StepRow* beside(const StepRow& row, bool independent) const;
};

// Throws Interrupted, and the first error of a rank; a row that does not fit is told in the row.
StepReport measure_steps(const StepOptions& options, std::vector<StepPoint> points);

std::string step_text(const StepReport& report);
std::string step_json(const StepReport& report);
std::string step_csv(const StepReport& report);

}  // namespace zl::cli
