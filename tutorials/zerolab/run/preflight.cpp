#include <algorithm>

#include "stages/predict/dry_run.h"
#include "stages/predict/plan.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

// What to try where there is too little of each.
constexpr const char* kAdvice[] = {
    "a smaller model, micro-batch or bucket, --set zerolab.recompute=full, or 'zerolab plan'",
    "offloading less, more ranks, or --checkpoint-writes wait",
    "another folder as nvme_path, or a smaller model"};

// What some ranks share.
struct Room {
  Pool pool;
  std::string place;  // "this machine", "GPU 0 (NVIDIA H200)"
  int64_t bytes;      // [B] that are left; of memory 0: unknown
  int ranks;          // that share it
};

// `each`: [B] of a rank.
void require_room(StageKind stage, const Room& room, int64_t each) {
  const int64_t all = each * std::max(room.ranks, 1);
  const bool unknown = room.bytes == 0 && room.pool != Pool::disk;
  if (unknown || all <= room.bytes) return;
  const std::string text =
      str(name(stage), " needs ", human_bytes(each), " (", each, " bytes) of ", name(room.pool),
          room.pool == Pool::disk ? " space" : " memory", " per rank, so ", human_bytes(all), " (",
          all, " bytes) on ", plural(room.ranks, "rank"), ", but ", room.place, " still has ",
          human_bytes(room.bytes), " (", room.bytes, " bytes); nothing was started. Try ",
          kAdvice[size_t(room.pool)]);
  require_input(room.pool != Pool::disk, text);
  throw OutOfMemory(text, 0, room.pool, "initialize", "", each);
}

// [B] of host memory at the peak of a step or of a save, which may begin long after the start.
int64_t host_peak(const TrainingSpec& spec, const RankReport& dry) {
  if (!spec.checkpoint.saves()) return dry.host.peak_total();
  const CheckpointBytes saved = checkpoint_bytes(prediction_input(spec), spec.device);
  const bool snapshot = spec.checkpoint.writes == CheckpointWrites::snapshot;
  return std::max(dry.host.peak_total(),
                  dry.host.live_total() + (snapshot ? saved.snapshot : saved.buffer));
}

void require_rooms(const TrainingSpec& spec, const RunSetup& setup, const RankReport& dry) {
  const StageKind stage = spec.engine.stage;
  const int64_t device = std::max(dry.rest.peak_total(), dry.init_peak_total),
                host = host_peak(spec, dry);
  const std::optional<LaunchedRank>& process = setup.backend.process;
  const int here = process ? process->local_size : spec.ranks;
  const std::vector<Gpu>& gpus = setup.device.gpus;
  for (size_t i = 0; i < gpus.size(); ++i)
    if (const int ranks = process ? 1 : setup.device.ranks_on(i, spec.ranks); ranks > 0)
      require_room(stage,
                   {Pool::device, str("GPU ", gpus[i].index, " (", gpus[i].name, ")"),
                    gpus[i].available, ranks},
                   device);
  // Ranks on the CPU have both pools in the machine's memory.
  const int64_t machine = host + (gpus.empty() ? device : 0);
  const Pool pool = gpus.empty() && host <= device ? Pool::device : Pool::host;
  require_room(stage, {pool, "this machine", available_memory(), here}, machine);
  // The file of each rank takes its space before the first step.
  const std::string& folder = spec.engine.nvme_path;
  if (needs_disk(spec.engine))
    require_room(stage, {Pool::disk, folder, free_disk_space(folder), here}, dry.disk.peak_total());
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
    require_rooms(unlimited, setup, dry);
  }
  return dry;
}

void require_host_limit(const TrainingSpec& spec, const RankReport& dry) {
  const int64_t host = host_peak(spec, dry), limit = spec.host_memory;
  if (limit == 0 || host <= limit) return;
  throw OutOfMemory(
      str(name(spec.engine.stage), " needs ", human_bytes(host), " (", host,
          " bytes) of host memory per rank, but --host-memory is ", human_bytes(limit), " (", limit,
          " bytes); nothing was started. Try a larger limit, or ", kAdvice[size_t(Pool::host)]),
      0, Pool::host, "initialize", "", host);
}

}  // namespace zl::cli
