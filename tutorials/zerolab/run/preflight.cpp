#include "tutorials/zerolab/run/preflight.h"

#include <algorithm>

#include "stages/predict/dry_run.h"
#include "stages/predict/plan.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

// [B] of host memory at the peak of a step or of a save, which may begin long after the start.
int64_t host_peak(const TrainingSpec& spec, const RankReport& dry) {
  if (!spec.checkpoint.saves()) return dry.host.peak_total();
  const CheckpointBytes saved = checkpoint_bytes(prediction_input(spec), spec.device);
  const bool snapshot = spec.checkpoint.writes == CheckpointWrites::snapshot;
  return std::max(dry.host.peak_total(),
                  dry.host.live_total() + (snapshot ? saved.snapshot : saved.buffer));
}

void require_room(const TrainingSpec& spec, const RunSetup& setup, const RankReport& dry) {
  const int64_t device = std::max(dry.rest.peak_total(), dry.init_peak_total),
                host = host_peak(spec, dry);
  const std::optional<LaunchedRank>& process = setup.backend.process;
  const bool apart = setup.device.on_gpus();  // else both pools use the machine's memory
  // Null: the machine's memory. 0 bytes available: unknown.
  const auto require = [&](const Gpu* gpu, int64_t each, int ranks) {
    const int64_t here = gpu ? gpu->available : available_memory();
    if (here == 0 || each <= here / std::max(ranks, 1)) return;
    throw OutOfMemory(
        str(name(spec.engine.stage), " needs ", human_bytes(each), " per rank",
            !gpu && host > 0 ? ", " + human_bytes(host) + " of them in host memory" : "", ", so ",
            human_bytes(each * ranks), " on ", plural(ranks, "rank"), ", but ",
            gpu ? str("GPU ", gpu->index, " (", gpu->name, ")") : "this machine", " has ",
            human_bytes(here),
            " left; nothing was started. Try a smaller model or reduce_bucket_size, --set "
            "train_micro_batch_size_per_gpu=1, --set zerolab.recompute=full, "
            "or 'zerolab plan', which needs no memory."),
        0, gpu || (!apart && host <= device) ? Pool::device : Pool::host, "initialize", "", each);
  };
  const std::vector<Gpu>& gpus = setup.device.gpus;
  for (size_t i = 0; i < gpus.size(); ++i)
    if (const int ranks = process ? 1 : setup.device.ranks_on(i, spec.ranks); ranks > 0)
      require(&gpus[i], device, ranks);
  const int here = process ? process->local_size : spec.ranks;
  require(nullptr, host + (apart ? 0 : device), here);
  if (!needs_disk(spec.engine)) return;
  // The file of each rank takes its space before the first step.
  const std::string& folder = spec.engine.nvme_path;
  const int64_t each = dry.disk.peak_total(), free = free_disk_space(folder);
  require_input(each <= free / std::max(here, 1), name(spec.engine.stage), " needs ", each,
                " bytes of disk space per rank for what is offloaded, so ", each * here, " (",
                human_bytes(each * here), ") on ", plural(here, "rank"), ", but ", folder, " has ",
                free, " (", human_bytes(free), ") left; nothing was started. Free some, ",
                "name another folder as nvme_path, or try a smaller model");
}

}  // namespace

RankReport require_memory(const TrainingSpec& spec, const RunSetup& setup,
                          const std::vector<StageKind>& stages) {
  RankReport dry;
  for (const StageKind stage : stages) {
    TrainingSpec unlimited = with_stage(spec, stage);
    unlimited.weights = nullptr;
    unlimited.host_memory = unlimited.device_memory = 0;
    dry = dry_run(unlimited, 0);
    require_room(unlimited, setup, dry);
  }
  return dry;
}

void require_host_limit(const TrainingSpec& spec, const RankReport& dry) {
  const int64_t host = host_peak(spec, dry), limit = spec.host_memory;
  if (limit == 0 || host <= limit) return;
  throw OutOfMemory(
      str(name(spec.engine.stage), " is out of host memory: each rank keeps ", human_bytes(host),
          " (", host, " bytes) there at its peak, but --host-memory is ", human_bytes(limit), " (",
          limit,
          " bytes); nothing was started. Try a larger limit, offloading less, more ranks where a "
          "stage shards what is offloaded, or --checkpoint-writes wait where checkpoints are "
          "saved."),
      0, Pool::host, "initialize", "", host);
}

}  // namespace zl::cli
