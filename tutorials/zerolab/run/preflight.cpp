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

std::string exact(int64_t bytes) { return str(human_bytes(bytes), " (", bytes, " bytes)"); }

// Ends the command: a rank needs `each` bytes, and `but` says why it cannot have them.
[[noreturn]] void refuse(StageKind stage, Pool pool, int64_t each, const std::string& but,
                         const char* instead = "") {
  const std::string text = str(name(stage), " needs ", exact(each), " of ", name(pool),
                               pool == Pool::disk ? " space" : " memory", " per rank, ", but,
                               "; nothing was started. Try ", instead, kAdvice[size_t(pool)]);
  require_input(pool != Pool::disk, text);
  throw OutOfMemory(text, 0, pool, "initialize", "", each);
}

// `each` rank of some needs so much of what they share. `left` of memory 0: unknown.
void require_room(StageKind stage, Pool pool, int64_t each, int ranks, const std::string& place,
                  int64_t left) {
  const int64_t all = each * std::max(ranks, 1);
  const bool unknown = left == 0 && pool != Pool::disk;
  if (!unknown && all > left)
    refuse(stage, pool, each,
           str("so ", exact(all), " on ", plural(ranks, "rank"), ", but ", place, " still has ",
               exact(left)),
           ranks > 1 && pool == Pool::device && !shards_parameter(stage) ? "a higher stage, " : "");
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
      require_room(stage, Pool::device, device, ranks,
                   str("GPU ", gpus[i].index, " (", gpus[i].name, ")"), gpus[i].available);
  // Ranks on the CPU have both pools in the machine's memory.
  const int64_t machine = host + (gpus.empty() ? device : 0);
  const Pool pool = gpus.empty() && host <= device ? Pool::device : Pool::host;
  require_room(stage, pool, machine, here, "this machine", available_memory());
  // The file of each rank takes its space before the first step.
  const std::string& folder = spec.engine.nvme_path;
  if (needs_disk(spec.engine))
    require_room(stage, Pool::disk, dry.disk.peak_total(), here, folder, free_disk_space(folder));
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
  if (limit > 0 && host > limit)
    refuse(spec.engine.stage, Pool::host, host, "but --host-memory is " + exact(limit),
           "a larger limit, or ");
}

}  // namespace zl::cli
