// Training any model under one stage: the loop of one rank, and all ranks together.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dist/lane/lane.h"
#include "nn/data/batch_source.h"
#include "nn/model.h"
#include "stages/checkpoint/load.h"
#include "stages/engine.h"
#include "tensor/platform/gpus.h"

namespace zl {

// The run was asked to end, for example by Ctrl-C.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// What one rank computes on. Null: the CPU, plain host memory, and a file where one is needed.
struct RankBackends {
  std::unique_ptr<Backend> device, host, disk;
};

// What moves data between ranks: threads that read each other's memory, NCCL with a GPU per rank,
// or MPI between processes on CPUs.
enum class Transport { threads, nccl, mpi };
const char* name(Transport transport);

struct TrainingSpec {
  // Makes the model: on each rank's own thread, and wherever only its shapes are needed.
  // Thread-safe.
  std::function<std::unique_ptr<Model>()> make_model;
  // One row of Batch::inputs and of Batch::targets, for a plan without data. With data they are
  // known: leave both empty.
  Shape input_row, target_row;
  // [n] of each input that waits for backward (nn/unit.h: checkpointed), for one row of the
  // micro-batch. Empty: unknown, and a dry run predicts what the closed formulas otherwise say.
  std::vector<int64_t> checkpointed_rows;
  Options engine;
  int64_t micro_batch = 4;  // B: rows of a rank's micro-batch
  int64_t steps = 100;      // at which training ends, also if it begins with a checkpoint
  int ranks = 1;
  int64_t device_memory = 0, host_memory = 0;  // [B] limits of each rank; 0: none
  bool poison = false;                         // fresh and freed memory is NaN (tests)
  RankOptions rank_options;                    // lanes are switched on by zl::rank_options()
  Link link;                                   // simulated, between ranks with lanes
  RunRanks run_ranks;  // makes the ranks; empty: threads that read each other's memory
  // The transport of `run_ranks`; predictions assume it too.
  Transport transport = Transport::threads;
  bool ordered_sums = true;             // false: NCCL adds in its own order
  DeviceKind device = DeviceKind::cpu;  // what the ranks compute on; likewise for a dry run
  bool reference = false;  // on the CPU, with the kernels of tensor/reference: use_reference()
  // Makes the backends of one rank, on its own thread; empty: the CPU. A dry run needs none.
  std::function<RankBackends(int rank)> backends;
  const BatchSource* data = nullptr;  // shared by the ranks; null in a dry run
  int64_t eval_every = 0;             // steps between evaluations on held-out rows; 0: never
  bool check_calls = false;           // cross-check the ranks' calls in all steps, not only in two
  // Weights to start from instead of initial values: all values of a parameter. Thread-safe.
  std::function<std::vector<float>(const Parameter&)> weights;
  // Makes and starts a stage of the caller; empty: zl::make_stage().
  std::function<MakeStage> make_stage;
  // Asked before each micro-batch; in a run that saves checkpoints after each step, so that the run
  // ends with one.
  std::function<bool()> interrupted;
  CheckpointOptions checkpoint;

  // A new model, checked. Throws InputError if there is none, std::invalid_argument as
  // check_units().
  std::unique_ptr<Model> new_model() const;
  // What a dry run runs on, and "cpu", "cuda" or "reference".
  Backend& meta() const { return reference ? meta_reference_backend() : meta_backend(device); }
  const char* device_name() const { return reference ? "reference" : zl::name(device); }
  Shape row_of_inputs() const { return data ? data->input_row() : input_row; }
  Shape row_of_targets() const { return data ? data->target_row() : target_row; }
  TrainingSpec without_data() const;  // for a dry run: the same rows, and nothing is read

  // Whether sums over ranks add in rank order; otherwise stages are equal but for rounding.
  bool ordered() const { return transport != Transport::nccl || ordered_sums; }
  // Whether such a sum first brings the other ranks' values into scratch memory.
  bool uses_scratch() const { return transport != Transport::threads && ordered(); }
};

// The options with which run_training() makes the ranks: spec.rank_options, and a lane for each
// rank that may compute while calls are in flight, or whose link is simulated. Only ranks that are
// threads on the CPU have lanes; throws InputError if the others shall have a simulated link.
RankOptions rank_options(const TrainingSpec& spec);

// Rows of Batch::inputs and Batch::targets on the host. A dry run moves no data, so it holds none.
struct HostBatch {
  std::vector<int32_t> inputs, targets;
};
HostBatch host_batch(const TrainingSpec& spec, int64_t rows);
Batch upload(const TrainingSpec& spec, const HostBatch& batch, int64_t rows, Memory& memory);

// One line of metrics.jsonl.
struct StepRecord : StepResult {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over the step's global batch, before the update
  double lr = 0;
  int64_t tokens = 0;  // elements of all ranks' inputs
  double seconds = 0;  // of forward, backward and update; with uploads; without reading data,
                       // logging, evaluation
  std::optional<double> loss_scale;  // of this step; in f16 only
  std::optional<double> eval_loss;
};

// One rank's model, engine and position in the data.
class Trainer {
 public:
  // All must outlive it. Throws OutOfMemory, and InputError if the spec contradicts itself.
  // `memories`: with a host's, and a disk's where needs_disk(spec.engine).
  Trainer(const TrainingSpec& spec, Communicator& comm, const Memories& memories);

  // One optimizer step. `after_backward`: called after each micro-batch's backward pass.
  StepRecord step(const std::function<void()>& after_backward = {});
  // The mean loss over the held-out rows, divided among the ranks; every rank must call it.
  double evaluate();

  // Steps made, and rows read. Micro-batch a of rank r takes B rows from
  // next_window + (a * N + r) * B on.
  RunPosition position() const;
  void restore(const RunPosition& position);
  int64_t steps() const { return steps_; }

  const TrainingSpec& spec() const { return spec_; }
  Model& model() { return *model_; }
  Engine& engine() { return *engine_; }
  Communicator& comm() { return comm_; }
  Memory& memory() { return memories_.device; }
  Memory& host() { return *memories_.host; }
  Memory* disk() { return memories_.disk; }  // null: nothing is stored on disk

 private:
  Engine::Forward forward_of(const HostBatch& batch, int64_t rows);

  const TrainingSpec& spec_;
  Communicator& comm_;
  const Memories memories_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  int64_t steps_ = 0, next_window_ = 0;
  std::vector<HostBatch> batches_;  // of a step's micro-batches, allocated once
};

// The memory and the traffic of one rank in a run.
struct RankReport {
  // Live bytes after the last step, before anything is freed; peaks of steps 1…n. Of the device,
  // the host and the disk pool.
  MemoryLedger rest, host, disk;
  const MemoryLedger& of(Pool pool) const {
    return pool == Pool::device ? rest : pool == Pool::host ? host : disk;
  }
  int64_t init_peak_total = 0;  // [B] highest while the stage was allocated and initialised
  CommunicationLog log;         // of the steps, without evaluations
  MoveLog moves;                // of the steps, without evaluations and saves of checkpoints
};

// On the process that has rank 0; other processes get nothing.
struct TrainingResult {
  std::vector<StepRecord> steps;  // rank 0's; equal on all ranks but for seconds
  std::vector<RankReport> ranks;
};

struct TrainingCallbacks {
  std::function<void(const LoadedCheckpoint&)> resumed;  // on rank 0, before at_start
  std::function<void(Trainer&)> at_start;                // on every rank, before the first step
  std::function<void(Trainer&)> after_backward;          // on every rank, after each micro-batch
  std::function<void(Trainer&)> after_step;              // on every rank, after each step
  std::function<void(const StepRecord&)> on_step;        // on rank 0, after each step
  std::function<void(const CheckpointRecord&)> saved;    // on rank 0, after each checkpoint
  std::function<void(Trainer&)> at_end;                  // on every rank, after the last step
  std::function<void(int rank, const Memory&)> freed;    // on every rank, when its trainer is gone
};

// Rank r on GPU gpus[r modulo their number], with pinned host memory. For TrainingSpec::backends.
std::function<RankBackends(int rank)> on_gpus(std::vector<int> gpus, GpuOptions options = {});

// Makes the ranks, and dry runs, compute with the textbook kernels of tensor/reference: every
// promise holds on them, in their own bits and with their own workspace.
void use_reference(TrainingSpec& spec);

// Runs spec.steps steps on all ranks. Rethrows the first error of a rank.
TrainingResult run_training(const TrainingSpec& spec, const TrainingCallbacks& callbacks = {});

// Peaks and traffic count from here. Returns the peak [B] of what came before.
int64_t begin_counting(Trainer& trainer);
RankReport report(Trainer& trainer, int64_t init_peak_total);

// The weights in fp32, unpadded, in the order of their names. Every rank must call it; rank 0 gets
// them.
std::vector<float> collect_weights(Trainer& trainer);
// FNV-1a-64 over the little-endian bytes.
uint64_t weights_hash(const std::vector<float>& weights);

}  // namespace zl
