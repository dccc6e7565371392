// The flags that several commands share, as typed. run_setup.h combines them with the
// configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/lane/lane.h"
#include "stages/checkpoint/checkpoint.h"
#include "stages/deepspeed/config.h"
#include "stages/stage.h"
#include "stages/variants/presets.h"
#include "tutorials/terminal/terminal.h"
#include "tutorials/zerolab/cli/flags.h"

namespace zl::cli {

// The flags of checkpoints. run/run_folder.h checks them.
struct CheckpointFlags {
  std::optional<int64_t> save_every, keep;
  std::optional<CheckpointWrites> writes;
  std::optional<std::string> resume;  // "": the folder of --out
  bool new_data = false;
};

// A flag that was not given is empty or has the default below. Settings that a configuration can
// have too are in `source`.
struct RunOptions {
  std::string command;    // "train"
  ConfigSource source;    // its ranks are set later
  std::string nvme_path;  // "": not given; for each device of `source` that is nvme
  std::optional<int> ranks;
  std::vector<int> several_ranks;              // of compare: more than one number
  int64_t device_memory = 0, host_memory = 0;  // [B] per rank; 0: no limit
  double timeout = 60;                         // [s]; 0: none
  Link link;                                   // simulated, if a flag asks for it
  enum class DeviceWish { automatic, cpu, cuda, reference };
  DeviceWish device = DeviceWish::automatic;
  bool tf32 = false;
  int threads = 1;  // compute threads of each rank
  enum class BackendWish { automatic, threads, nccl, mpi };
  BackendWish backend = BackendWish::automatic;
  bool check = false;  // compare the calls of all steps

  std::optional<int64_t> n_layer, n_head, n_embd, block_size, vocab_size;
  std::string init_from;

  bool shuffle = false;
  int64_t eval_every = 0;  // steps; 0: never

  std::string out, trace;  // "": none
  CheckpointFlags checkpoint;
  bool json = false, quiet = false;
  Color color = Color::automatic;

  // `flag` gives the value of `key`; `is_string` as in KeyFlag.
  void set(const std::string& flag, const std::string& key, const std::string& text,
           bool is_string = true) {
    source.flags.push_back({flag, key, text, is_string});
  }
  bool given(std::string_view flag) const;  // of those
};

// The index of `text` among `words`. Throws InputError that lists them if it is none.
size_t choose(const std::string& text, const std::vector<std::string>& words);
// Lines of --help, after a list of the paper's four.
std::string variants_help();
// "zero2" or "2". Throws InputError with the list otherwise.
StageKind read_stage(const std::string& text);
// "bf16". Throws InputError with the list otherwise.
Dtype read_precision(const std::string& text);
OffloadDevice read_offload(const std::string& text);
// "zero1,zero3": a list of them, returned in the order of the stages without doubles; or "all".
// Names of presets go to `presets`; without it they are errors.
std::vector<StageKind> read_stages(const std::string& text,
                                   std::vector<const Preset*>* presets = nullptr);
// "paper,deepspeed-1". "paper" means the stages that the presets change, which always run.
std::vector<const Preset*> read_presets(const std::string& text);
// "fp32", "bf16", "fp16".
const char* precision_name(Dtype dtype);

// Each adds the flags that its comment lists. `options` must outlive the program's run.
void add_settings_flags(Flags& flags, RunOptions& options);  // --config --set --precision …
void add_run_flags(Flags& flags, RunOptions& options);       // those, --steps and --seed
void add_memory_flags(Flags& flags, RunOptions& options,
                      const std::string& beyond);  // --device-memory --host-memory
// --ranks; `several`: or a list of numbers
void add_ranks_flag(Flags& flags, RunOptions& options, int default_ranks, bool several = false);
void add_device_flag(Flags& flags, RunOptions& options);  // --device
RunOptions::DeviceWish read_device(const std::string& text);
void add_threads_flag(Flags& flags, RunOptions& options);
void add_device_flags(Flags& flags, RunOptions& options);  // … --tf32 and --threads
void add_timeout_flag(Flags& flags, RunOptions& options);  // --timeout
void add_backend_flag(Flags& flags, RunOptions& options, const std::string& help);  // --backend
// --ranks … --timeout
void add_rank_flags(Flags& flags, RunOptions& options, int default_ranks, bool several = false);
void add_group_flags(Flags& flags, RunOptions& options);  // --ranks-per-node --replicas
// Throws UsageError if such a flag is given and none of the stages has groups. `machine`: the size
// of a node is its own.
void require_groups_used(const ConfigSource& source, const std::vector<StageKind>& stages,
                         bool machine = false);
void add_link_flags(Flags& flags, RunOptions& options);  // --link-bandwidth --link-latency
// --stages; `presets`: they may be listed too
void add_stages_flag(Flags& flags, std::vector<StageKind>& stages,
                     std::vector<const Preset*>* presets = nullptr);
void add_model_flags(Flags& flags, RunOptions& options);       // --model, sizes, --init-from
void add_data_flags(Flags& flags, RunOptions& options);        // --data --shuffle --eval-every
void add_output_flags(Flags& flags, RunOptions& options);      // --json --color -q
void add_save_flags(Flags& flags, RunOptions& options);        // --save-every --checkpoint-writes
void add_checkpoint_flags(Flags& flags, RunOptions& options);  // those, --keep, --resume …

}  // namespace zl::cli
