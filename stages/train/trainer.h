// Training a GPT under one stage: the loop of one rank, and all ranks together.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dist/run_ranks.h"
#include "nn/gpt.h"
#include "stages/engine.h"
#include "stages/train/rank_report.h"
#include "tensor/platform/gpus.h"

namespace zl {

class Windows;

// Someone asked the run to end (Ctrl-C). Programs exit with 130.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// What one rank computes on: null is the CPU, and plain memory.
struct RankBackends {
  std::unique_ptr<Backend> device, host;
};

// What moves the ranks' data.
enum class Transport {
  threads,
  nccl
};  // ranks read each other's memory; NCCL, with a GPU for each rank
const char* name(Transport transport);

struct TrainingSpec {
  GptConfig model;
  int64_t window = 0;  // T of a micro-batch, at most model.block_size; 0: model.block_size
  Config config;       // config.stage: which stage; empty is ddp
  int ranks = 1;
  int64_t device_memory = 0, host_memory = 0;  // [B] limits of each rank; 0: none
  bool poison = false;                         // fresh and freed memory is NaN (tests)
  RankOptions rank_options;
  RunRanks
      run_ranks;  // makes the ranks; where there is none, threads that read each other's memory
  Transport transport =
      Transport::threads;  // what `run_ranks` gives them, and what a dry run and formulas stand for
  DeviceKind device = DeviceKind::cpu;  // what the ranks compute on, and what a dry run stands for
  // Makes the backends of one rank, called on its own thread; where there is none, the CPU's. A dry
  // run needs none.
  std::function<RankBackends(int rank)> backends;
  const Windows* windows = nullptr;  // shared by the ranks; null in a dry run
  int64_t eval_every = 0;            // steps between evaluations on held-out windows; 0: never
  bool check_calls =
      false;  // compare the ranks' calls in every step, and not only in the first two
  // Weights to start from instead of initial values; called by all ranks at once, so it must be
  // thread-safe.
  std::function<std::vector<float>(const Parameter&)> weights;
  std::function<bool()> interrupted;  // asked before each micro-batch

  // Whether ranks add in rank order. Else NCCL adds, and stages are equal but for rounding.
  bool ordered() const { return transport == Transport::threads || config.ordered; }
  // Whether such a sum first brings the other ranks' values into scratch memory.
  bool uses_scratch() const { return transport == Transport::nccl && config.ordered; }
};

// One line of metrics.jsonl.
struct StepRecord {
  int64_t step = 0;      // from 1
  double loss = 0;       // mean over the step's global batch, before the update
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // of all ranks
  double seconds =
      0;  // from before the first forward to after the update; no data, logging, evaluation
  bool skipped = false;
  std::optional<double> loss_scale;  // of this step; in fp16 only
  std::optional<Culprit> culprit;    // of a gradient that is not finite
  std::optional<double> eval_loss;
};

// One rank's model, stage and place in the data.
class RankTraining {
 public:
  // All must outlive it. Throws OutOfMemory.
  RankTraining(const TrainingSpec& spec, Communicator& comm, Memory& memory, Memory& host);

  StepRecord step();
  // Mean loss over the held-out windows, shared among the ranks; every rank must call it.
  double evaluate();

  Gpt& model() { return model_; }
  Engine& engine() { return *engine_; }
  Communicator& comm() { return comm_; }
  Memory& memory() { return memory_; }  // of the device
  Memory& host() { return host_; }

 private:
  struct MicroBatch {
    std::vector<int32_t> ids, targets;  // (B, T) each
  };
  double run_micro_batch(const MicroBatch& batch, bool train);

  const TrainingSpec& spec_;
  Communicator& comm_;
  Memory &memory_, &host_;
  Gpt model_;
  std::unique_ptr<Engine> engine_;
  int64_t window_, steps_ = 0;
  std::vector<MicroBatch> batches_;  // allocated once: one per micro-batch of a step
};

// On the process that has rank 0; others get nothing.
struct TrainingResult {
  std::vector<StepRecord> steps;  // rank 0's; equal on all ranks but for seconds
  std::vector<RankReport> ranks;
};

struct TrainingCallbacks {
  std::function<void(RankTraining&)> at_start;     // on every rank, before the first step
  std::function<void(const StepRecord&)> on_step;  // on rank 0, after each step
  std::function<void(RankTraining&)> at_end;       // on every rank, after the last step
};

// Rank r on GPU gpus[r modulo their number], with pinned memory of the host beside it. For
// TrainingSpec::backends.
std::function<RankBackends(int rank)> on_gpus(std::vector<int> gpus, GpuOptions options = {});

// Runs spec.config.steps steps on all ranks. Rethrows the first error of a rank.
TrainingResult run_training(const TrainingSpec& spec, const TrainingCallbacks& callbacks = {});

// The same loop for one rank of any number, without data: the planner. Three steps of at most three
// micro-batches, as peaks repeat from then on; the log is that of one such step.
RankReport dry_run(const TrainingSpec& spec, int rank);

// Whole fp32 weights in the order of names in model.safetensors, unpadded. Every rank must call it;
// rank 0 gets them.
std::vector<float> collect_weights(RankTraining& training);
// FNV-1a-64 over the little-endian bytes.
uint64_t weights_hash(const std::vector<float>& weights);

}  // namespace zl
