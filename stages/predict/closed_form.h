// Closed formulas for what a stage keeps and sends, from the sizes of the units alone.
//
// They assume that every unit runs once per micro-batch, blocks in the order of the list, inside
// root. Nothing here runs a stage or reads a ledger, so a prediction cannot agree with a
// measurement by sharing its mistake. The one rule that a running stage shares says which blocks
// stay unsharded between forward and backward (first_kept_block() of stages/steady_state.h).
//
// Activations, workspace and the total peak have no closed form; the dry run predicts those
// (stages/predict/dry_run.h). Source: Rajbhandari et al. 2020, "ZeRO" (arXiv:1910.02054), sections
// 3.1, 5 and 7, with our padding.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "dist/call.h"
#include "nn/unit.h"
#include "stages/stage_file.h"
#include "tensor/moves.h"

namespace zl {

struct PredictionInput {
  Options options;
  int ranks = 1;
  bool scratch = false;  // sums over ranks first receive the other ranks' values, as with NCCL
  std::vector<int64_t> units;     // [n] padded size of each unit, root first
  std::vector<bool> frozen = {};  // of each unit: whether one of its parameters is; empty: none is
  int64_t parameters = 0;         // [n] of all units without padding; only checkpoints need it
  // [n] of each input of a micro-batch that waits for backward, because its unit is checkpointed;
  // none: backward keeps all activations, or nothing is known.
  std::vector<int64_t> kept_inputs;

  // [B] of the optimizer, per parameter.
  OptimizerBytes optimizer() const { return optimizer_bytes(options.optimizer, options.precision); }
  // Of a unit: each rank keeps one, and each replica all of them.
  int shards() const { return ranks / int(std::max<int64_t>(1, options.replicas)); }
};

// [n] Each parameter rounded up to 16 elements, the unit to 16 * ranks, in reproducible mode to
// 1,024 * ranks.
std::vector<int64_t> padded_unit_sizes(const std::vector<Unit>& units, int ranks,
                                       const Options& options = {});

struct Prediction {
  // [B] of one rank in one pool; by the formulas alone zero for activation on the device and for
  // workspace, which the dry run predicts.
  struct PoolBytes {
    std::array<int64_t, kMemoryUses> rest{}, peak{};
    int64_t rest_of(MemoryUse use) const { return rest[size_t(use)]; }
    int64_t peak_of(MemoryUse use) const { return peak[size_t(use)]; }
  };
  PoolBytes device, host, disk;
  const PoolBytes& of(Pool pool) const {
    return pool == Pool::device ? device : pool == Pool::host ? host : disk;
  }
  // Of one rank and step: of a step that updates, and with purpose `check` of one whose gradient is
  // not finite.
  CommunicationLog traffic;
  // Of one rank and step that updates, because shards are offloaded or inputs wait on the host
  // (tensor/moves.h says what a move is); and the part of it that a skipped step does not make.
  // A unit of n padded elements has shards of n/N. Per micro-batch, an offloaded parameter shard is
  // copied to the device before each all-gather of the unit, and a reduced gradient is added to an
  // offloaded gradient shard. An update moves what is not in the memory of the optimizer, and moves
  // updated parameters back: ZeRO-Offload, Ren et al. 2021 (arXiv:2101.06840), section 4;
  // ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv:2104.07857), section 5.
  MoveLog moves, update_moves;
};
// Throws InputError if the stage has no such groups of ranks.
Prediction predict(PredictionInput input);

// ---- the inputs that checkpointed units keep for backward (nn/unit.h) --------------------------

// [B] of one rank between forward and backward, of all inputs together. On the device, or with
// cpu_checkpointing on the host.
int64_t kept_bytes(const PredictionInput& in);

// ---- checkpoints, and the paper's own terms ----------------------------------------------------

// [B] of a checkpoint. Its tensors are fp32: the weights, and the state of the optimizer.
struct CheckpointBytes {
  int64_t disk = 0;  // of all tensors, without padding, whatever the stage; headers come on top
  // Of the host memory that each rank takes for a save: with CheckpointWrites::snapshot, a copy of
  // its shard; otherwise, where a part of the state is on a GPU or on disk, a buffer.
  int64_t snapshot = 0, buffer = 0;
};
CheckpointBytes checkpoint_bytes(PredictionInput input, DeviceKind device);

// Whether the closed formulas say anything about a use. Of activations, those on the host: only
// inputs wait there.
bool has_closed_formula(MemoryUse use, Pool pool);

// The paper's own terms: model states of a rank without padding, for any number of parameters.
struct ModelStates {
  double parameter, gradient, optimizer;  // [B]; optimizer includes the master copy
  double total() const { return parameter + gradient + optimizer; }
};
struct ElementBytes {
  int64_t parameter = 4, gradient = 4;  // [B]
  OptimizerBytes optimizer{8, 0};
  int64_t total() const { return parameter + gradient + optimizer.state + optimizer.master; }
};
ModelStates model_states(StageKind stage, double parameters, int ranks, const ElementBytes& bytes);

// [n] sent per rank and step: (N-1)/N * parameters * 2, 2, 2, 3 for one micro-batch per step. The
// paper's bound: predict() sends less in stage 3, where root is gathered once for both passes.
struct SentElements {
  double gradient = 0, parameter = 0;  // by what is sent; their types may differ
  double total() const { return gradient + parameter; }
};
SentElements sent_elements(const Options& options, double parameters, int ranks);

}  // namespace zl
