#include "tutorials/zerolab/run/preflight.h"

#include <algorithm>

#include "stages/predict/dry_run.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

// The memory that `ranks` ranks need of one GPU or of the machine.
struct Demand {
  int64_t each = 0, host = 0;  // [B] of a rank; of these, for offloaded tensors
  int64_t here = 0;            // [B] left there; 0: unknown
  int ranks = 1;
  std::string where;
  Pool pool = Pool::device;
};

void require_memory(StageKind stage, const Demand& d) {
  if (d.here == 0 || d.each <= d.here / std::max(d.ranks, 1)) return;
  throw OutOfMemory(
      str(name(stage), " needs ", human_bytes(d.each), " per rank",
          d.host > 0 ? str(", ", human_bytes(d.host), " of them in host memory") : "", ", so ",
          human_bytes(d.each * d.ranks), " on ", plural(d.ranks, "rank"), ", but ", d.where,
          " has ", human_bytes(d.here),
          " left; nothing was started. Try a smaller model or reduce_bucket_size, --set "
          "train_micro_batch_size_per_gpu=1, --set zerolab.recompute=full, "
          "or 'zerolab plan', which needs no memory."),
      0, d.pool, "initialize", "", d.each);
}

// `rank`: a dry run without limits. The run would fail at the allocation that exceeds the limit.
void require_host_limit(const GptTrainingSpec& spec, StageKind stage, const RankReport& rank) {
  const int64_t host = rank.host.peak_total(), limit = spec.host_memory;
  if (limit == 0 || host <= limit) return;
  throw OutOfMemory(
      str(name(stage), " is out of host memory: each rank keeps ", human_bytes(host), " (", host,
          " bytes) there at its peak, but --host-memory is ", human_bytes(limit), " (", limit,
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

}  // namespace

void require_memory(const GptTrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages) {
  const DeviceChoice& device = setup.device;
  const std::optional<LaunchedRank>& process = setup.backend.process;
  const int ranks_here = process ? process->local_size : spec.ranks;
  for (const StageKind stage : stages) {
    GptTrainingSpec dry = spec;
    dry.engine.stage = stage;
    dry.weights = nullptr;
    dry.host_memory = 0;
    dry.device_memory = 0;  // the run itself checks this limit, and names rank, unit and phase
    const RankReport rank = dry_run(dry, 0);
    require_host_limit(spec, stage, rank);
    const int64_t host = rank.host.peak_total(),
                  each = std::max(rank.rest.peak_total(), rank.init_peak_total);
    for (size_t i = 0; i < device.gpus.size(); ++i) {
      const int ranks = process ? 1 : device.ranks_on(i, spec.ranks);
      if (ranks == 0) continue;
      const Gpu& gpu = device.gpus[i];
      const std::string where = str("GPU ", gpu.index, " (", gpu.name, ")");
      require_memory(stage, {.each = each,
                             .here = gpu.available,
                             .ranks = ranks,
                             .where = where,
                             .pool = Pool::device});
    }
    const bool apart = device.on_gpus();  // else both pools use the machine's memory
    require_memory(stage, {.each = host + (apart ? 0 : each),
                           .host = host,
                           .here = available_memory(),
                           .ranks = ranks_here,
                           .where = "this machine",
                           .pool = host > each || apart ? Pool::host : Pool::device});
    require_disk(dry, rank.disk.peak_total(), ranks_here);
  }
}

}  // namespace zl::cli
