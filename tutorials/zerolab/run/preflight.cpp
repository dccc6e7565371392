#include "tutorials/zerolab/run/preflight.h"

#include <algorithm>

#include "stages/predict/dry_run.h"
#include "stages/predict/plan.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

// [B] of one rank in each pool.
struct Needs {
  int64_t device = 0, host = 0, disk = 0;
  const char* bound = "";  // "at least ": activations and workspace are not in them
};

// The memory that `ranks` ranks need of one GPU or of the machine.
struct Demand {
  int64_t each = 0, host = 0;  // [B] of a rank; of these, for offloaded tensors
  int64_t here = 0;            // [B] left there; 0: unknown
  int ranks = 1;
  std::string where;
  Pool pool = Pool::device;
  const char* bound = "";
};

void require_memory(StageKind stage, const Demand& d) {
  if (d.here == 0 || d.each <= d.here / std::max(d.ranks, 1)) return;
  throw OutOfMemory(
      str(name(stage), " needs ", d.bound, human_bytes(d.each), " per rank",
          d.host > 0 ? str(", ", human_bytes(d.host), " of them in host memory") : "", ", so ",
          human_bytes(d.each * d.ranks), " on ", plural(d.ranks, "rank"), ", but ", d.where,
          " has ", human_bytes(d.here),
          " left; nothing was started. Try a smaller model or reduce_bucket_size, --set "
          "train_micro_batch_size_per_gpu=1, --set zerolab.recompute=full, "
          "or 'zerolab plan', which needs no memory."),
      0, d.pool, "initialize", "", d.each);
}

// The run would fail at the allocation that exceeds the limit.
void require_host_limit(const TrainingSpec& spec, const Needs& needs) {
  const int64_t host = needs.host, limit = spec.host_memory;
  if (limit == 0 || host <= limit) return;
  throw OutOfMemory(
      str(name(spec.engine.stage), " is out of host memory: each rank keeps ", needs.bound,
          human_bytes(host), " (", host, " bytes) there at its peak, but --host-memory is ",
          human_bytes(limit), " (", limit,
          " bytes); nothing was started. Try a larger limit, offloading less, more ranks where a "
          "stage shards what is offloaded, or --checkpoint-writes wait where checkpoints are "
          "saved."),
      0, Pool::host, "initialize", "", host);
}

// The file of each rank takes its space before the first step.
void require_disk(const TrainingSpec& spec, int64_t each, int ranks) {
  if (!needs_disk(spec.engine)) return;
  const std::string& folder = spec.engine.nvme_path;
  const int64_t here = free_disk_space(folder);
  require_input(each <= here / std::max(ranks, 1), name(spec.engine.stage), " needs ", each,
                " bytes of disk space per rank for what is offloaded, so ", each * ranks, " (",
                human_bytes(each * ranks), ") on ", plural(ranks, "rank"), ", but ", folder,
                " has ", here, " (", human_bytes(here), ") left; nothing was started. Free some, ",
                "name another folder as nvme_path, or try a smaller model");
}

// The least that a run takes, by closed formulas: what stays between steps, and the largest of the
// buffers beside it.
Needs least_needs(const TrainingSpec& spec) {
  const PredictionInput input = prediction_input(spec);
  const Prediction p = predict(input);
  const auto least = [](const Prediction::PoolBytes& pool) {
    int64_t rest = 0, beside = 0;
    for (int i = 0; i < kMemoryUses; ++i) {
      rest += pool.rest_of(MemoryUse(i));
      beside = std::max(beside, pool.peak_of(MemoryUse(i)) - pool.rest_of(MemoryUse(i)));
    }
    return rest + beside;
  };
  const CheckpointBytes saved = checkpoint_bytes(input, spec.device);
  const bool snapshot = spec.checkpoint.writes == CheckpointWrites::snapshot;
  const int64_t copies = !spec.checkpoint.saves() ? 0 : snapshot ? saved.snapshot : saved.buffer;
  return {least(p.device), least(p.host) + copies, least(p.disk), "at least "};
}

// Its peaks, by a dry run.
Needs needs(const RankReport& dry) {
  return {std::max(dry.rest.peak_total(), dry.init_peak_total), dry.host.peak_total(),
          dry.disk.peak_total()};
}

void require_memory(const TrainingSpec& spec, const RunSetup& setup, const Needs& needs) {
  const StageKind stage = spec.engine.stage;
  const DeviceChoice& device = setup.device;
  const std::optional<LaunchedRank>& process = setup.backend.process;
  const int ranks_here = process ? process->local_size : spec.ranks;
  require_host_limit(spec, needs);
  for (size_t i = 0; i < device.gpus.size(); ++i) {
    const int ranks = process ? 1 : device.ranks_on(i, spec.ranks);
    if (ranks == 0) continue;
    const Gpu& gpu = device.gpus[i];
    require_memory(stage, {.each = needs.device,
                           .here = gpu.available,
                           .ranks = ranks,
                           .where = str("GPU ", gpu.index, " (", gpu.name, ")"),
                           .pool = Pool::device,
                           .bound = needs.bound});
  }
  const bool apart = device.on_gpus();  // else both pools use the machine's memory
  require_memory(stage, {.each = needs.host + (apart ? 0 : needs.device),
                         .host = needs.host,
                         .here = available_memory(),
                         .ranks = ranks_here,
                         .where = "this machine",
                         .pool = needs.host > needs.device || apart ? Pool::host : Pool::device,
                         .bound = needs.bound});
  require_disk(spec, needs.disk, ranks_here);
}

RankReport unlimited_dry_run(const TrainingSpec& spec) {
  TrainingSpec dry = spec;
  dry.weights = nullptr;
  dry.host_memory = dry.device_memory = 0;  // the run checks its limits, and names rank and unit
  return dry_run(dry, 0);
}

}  // namespace

void require_memory(const GptTrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages) {
  for (const StageKind stage : stages) {
    const TrainingSpec of_stage = with_stage(spec, stage);
    require_memory(of_stage, setup, needs(unlimited_dry_run(of_stage)));
  }
}

std::optional<RankReport> require_memory(const RunSetup& setup, bool dry_run) {
  std::optional<RankReport> dry;
  if (dry_run) dry = unlimited_dry_run(setup.spec);
  require_memory(setup.spec, setup, dry ? needs(*dry) : least_needs(setup.spec));
  return dry;
}

}  // namespace zl::cli
