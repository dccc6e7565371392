// How far the clock's predictions are from what others published.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stages/predict/clock/clock_plan.h"
#include "stages/predict/ground_truth/published.h"

namespace zl {

// Mean and largest of |predicted / measured - 1|.
struct ErrorSum {
  int count = 0;
  double sum = 0, largest = 0;
  void add(double predicted, double measured);
  void add(const ErrorSum& other);
  double mean() const { return count > 0 ? sum / count : 0; }
};

// ---- collectives -------------------------------------------------------------------------------

// Classes of sizes: calls of at least so many bytes.
constexpr int64_t kSizes[] = {int64_t(64) << 10, int64_t(1) << 20, int64_t(16) << 20,
                              int64_t(256) << 20};

// The table of one collective on one system.
struct CallErrors {
  std::string machine, system;
  Collective collective{};
  int ranks = 0, nodes = 1;
  ErrorSum own;         // fitted to even powers of two, tested on odd ones; none if it has few rows
  ErrorSum by_size[4];  // from the machine without measured collectives, by kSizes
};
std::vector<CallErrors> collective_errors(const std::vector<PublishedCall>& calls);
// Of all tables.
CallErrors total(const std::vector<CallErrors>& tables);

// ---- steps -------------------------------------------------------------------------------------

// [s] A published step and what the clock says.
struct StepPrediction {
  const PublishedStep* step;
  // From the machine's data sheet with the shares of the other kind: of H100 for A100, and of A100
  // for all others. So nothing is measured on this kind.
  double spec_sheet = 0;
  double shipped = 0;
  // As spec_sheet, with one factor on all kernels, by which the row of the set that has
  // `calibrates` is exact.
  double calibrated = 0;
  bool fitted = false;  // the shares of the shipped machine are fitted to this row
  bool calibrates = false;
};
// A set is what one program published of one machine; its rows are neighbours. The row that
// calibrates it has the fewest ranks, of these the window and stage that most rows of the set have,
// and is the first of these. `before_each` is called before each step, and may throw to end it.
std::vector<StepPrediction> predict_steps(const std::vector<PublishedStep>& steps,
                                          const std::function<void()>& before_each = {});

struct SetErrors {
  std::string program, machine, unlike;
  const PublishedStep* calibrated_on = nullptr;
  ErrorSum spec_sheet, fitted, held_out, calibrated;  // fitted, held_out: of the shipped machine
};
std::vector<SetErrors> set_errors(const std::vector<StepPrediction>& predictions);
// Of the sets whose programs the clock models.
SetErrors total(const std::vector<SetErrors>& sets);

// [s] Of a run whose forward pass is repeated for the step's share of blocks.
double predicted_seconds(const PublishedStep& step, const Machine& machine);

// The run, with all of the blocks recomputed or none. A model of Llama's kind is replaced by a GPT
// of the same width, heads and vocabulary, with as many layers as hold the parameters of its
// blocks. Replicas of hsdp are the machine's nodes.
GptTrainingSpec training_spec(const PublishedStep& step, bool recompute, const Machine& machine);

// ---- order -------------------------------------------------------------------------------------

// Published steps that differ in one thing, and by at least kNoise: the releases of one program
// differ by as much.
constexpr double kNoise = 0.02;
struct OrderErrors {
  int pairs = 0, right = 0;  // right: the clock, with shipped machines, has the same order
};
struct StepOrder {
  OrderErrors stages, machines, ranks;
};
StepOrder step_order(const std::vector<StepPrediction>& predictions);

}  // namespace zl
