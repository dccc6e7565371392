// Trains the odd model for a few steps under one stage, with poisoned memory, and returns
// everything that can be compared.
#pragma once

#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stages/predict/closed_form.h"
#include "stages/train/trainer.h"
#include "tensor/backend.h"
#include "tests/device.h"
#include "tests/stages/odd_model.h"

namespace zl::test {

using StageHook = std::function<void(Stage&, OddModel&, Communicator&, Memory&)>;

// What a rank keeps between micro-batches: the full tensor or its shard.
inline const Tensor& kept_gradient(const UnitState& u) {
  return u.full_gradient.defined() ? u.full_gradient : u.gradient_shard;
}
inline const Tensor& kept_parameter(const UnitState& u) {
  return u.parameter_shard.defined() ? u.parameter_shard : u.full_parameter;
}

// Sets the reduced gradient of every parameter element to `value`; padding stays zero.
void set_gradients(Stage& stage, OddModel& model, Communicator& comm, double value);

// Each of the four stages, one after another. Once in a test.
inline StageKind any_stage() {
  return GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
}

struct StageRunSpec {
  StageKind stage = StageKind::ddp;
  std::function<MakeStage> make;  // instead of `stage`: makes and starts a stage of the test
  int ranks = 3;
  int micro_batches = 1;
  int steps = 4;
  OddModelOptions model;
  Options options;
  double lr = 0.05, max_norm = 1.0;
  double scale = 1;            // of the loss
  bool offload = false;        // of the optimizer, to the host pool
  bool nvme = false;           // the same, its state to a file
  bool nvme_param = false;     // parameter shards to that folder
  Swap swap;                   // of nvme
  bool offload_param = false;  // of parameter shards, to the host pool
  bool cpu_checkpointing = false;
  bool scratch = false;               // what is predicted has scratch for sums in rank order
  int64_t limit = 0, host_limit = 0;  // [B] of each rank
  uint64_t data_seed = 7;
  int64_t first_micro_batch = 0;  // j of the first
  RankOptions rank_options;
  RunRanks run;  // instead of run_ranks(): gives the ranks other communicators
  std::function<RankBackends(int rank)> backends;  // empty: what tests/device.h says
  // Called on each rank before the steps, and after each micro-batch's backward and each step.
  StageHook at_start, after_backward, after_step;
};

struct StageRun {
  std::vector<double> losses, norms;  // of each step
  std::vector<float> weights;         // all parameters in order, unpadded
  std::vector<bool> skipped;
  std::vector<std::optional<NonfiniteGradient>> nonfinite;  // of each step
  std::vector<float> master;          // as `weights`, but of the master copy where there is one
  std::vector<MemoryLedger> ledgers;  // by rank: after the last step; peaks of the steps
  std::vector<MemoryLedger> host_ledgers, disk_ledgers;  // the same of these pools
  std::vector<int64_t> live_at_end;                      // by rank: when model and stage are gone
  std::vector<CommunicationLog> logs;                    // by rank: of all steps
  std::vector<MoveLog> moves;                            // likewise
  std::vector<std::pair<std::string, int64_t>> parameters;  // name [unit], and number of elements
  // "weight block0.up[17] of unit block0 is 0.25, not 0.125 (ratio 2); 71 of 900 differ": the first
  // difference in losses, norms, weights and master weights. Empty: all bits are the same.
  std::string difference(const StageRun& other) const;
  // Where it is false, the difference is in the message of the check that fails.
  bool same_bits(const StageRun& other) const;
};

StageRun run_stage(const StageRunSpec& spec);
// Its micro-batches, two rows each. `spec` must outlive them.
std::unique_ptr<BatchSource> odd_data(const StageRunSpec& spec);
// The training that run_stage() runs. Both must outlive it.
TrainingSpec training_spec(const StageRunSpec& spec, const BatchSource& data);

// What the closed formulas say of such a run.
Prediction predicted(const StageRunSpec& spec);
// "rank 1, host gradient at rest: 12 B, not 16 B; …": where the ledgers differ from the formulas.
// Empty: nowhere.
std::string off_the_prediction(const StageRunSpec& spec, const StageRun& run);
// The same of the rows of the log, of all steps; none of them may have been skipped.
std::string off_the_traffic(const StageRunSpec& spec, const StageRun& run);
// The same of moves, also where steps were skipped.
std::string off_the_moves(const StageRunSpec& spec, const StageRun& run);

}  // namespace zl::test
