// Trains the odd model for a few steps under one stage, with poisoned memory, and returns all that can be compared.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "dist/run_ranks.h"
#include "stages/stage.h"
#include "tensor/backend.h"
#include "tests/stages/odd_model.h"

namespace zl::test {

using MakeStage = std::function<std::unique_ptr<Stage>(std::vector<Unit>&, Communicator&, Memory&, const StageOptions&)>;

struct StageRunSpec {
  StageKind stage = StageKind::ddp;
  MakeStage make;  // instead of `stage`: a stage of the test's own
  int ranks = 3;
  int micro_batches = 1;
  int steps = 4;
  OddModelOptions model;
  StageOptions options;
  double lr = 0.05, max_norm = 1.0;
  int64_t limit = 0;                // [B] of each rank
  uint64_t data_seed = 7;
  int64_t first_micro_batch = 0;    // j of the first
  RankOptions rank_options;
  // Called on each rank before the steps, and after each micro-batch's backward and each step.
  std::function<void(Stage&, OddModel&, Communicator&, Memory&)> at_start, after_backward, after_step;
};

struct StageRun {
  std::vector<double> losses, norms;       // of each step
  std::vector<float> weights;              // all parameters in order, unpadded
  std::vector<bool> skipped;
  std::vector<MemoryLedger> ledgers;       // by rank: after the last step; peaks of the steps
  std::vector<int64_t> live_at_end;        // by rank: when model and stage are gone
  std::vector<CommunicationLog> logs;      // by rank: of all steps
  bool same_bits(const StageRun& other) const;
};

StageRun run_stage(const StageRunSpec& spec);

}  // namespace zl::test
