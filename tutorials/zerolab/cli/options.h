// The flags that several commands share, as typed. run_setup.h combines them with the
// configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/stage.h"
#include "stages/train/trainer.h"
#include "stages/variants/presets.h"
#include "tutorials/zerolab/cli/flags.h"

namespace zl::cli {

// A flag that was not given is empty or has the default below. Settings that a configuration can
// have too are in `source`.
struct RunOptions {
  std::string command;  // "train"
  ConfigSource source;  // its ranks are set later
  std::optional<int> ranks;
  // What flags alone decide: limits, timeout, link, check, evaluations, checkpoints; their folders
  // come from complete_checkpoint_flags() of run/run_folder.h.
  TrainingSpec spec;
  enum class DeviceWish { automatic, cpu, cuda, reference };
  DeviceWish device = DeviceWish::automatic;
  bool tf32 = false;
  int threads = 1;  // compute threads of each rank
  enum class BackendWish { automatic, threads, nccl, mpi };
  BackendWish backend = BackendWish::automatic;

  std::optional<int64_t> n_layer, n_head, n_embd, block_size, vocab_size;
  std::string init_from;

  bool shuffle = false;
  std::string out, trace;             // "": none
  std::optional<std::string> resume;  // "": the folder of --out
  bool json = false, quiet = false;

  // `flag` gives the value of `key`; `is_string` as in KeyFlag.
  void set(const std::string& flag, const std::string& key, const std::string& text,
           bool is_string = true) {
    source.flags.push_back({flag, key, text, is_string});
  }
  bool given(std::string_view flag) const;  // of those
};

// The parts of a list such as "fp32,bf16". An empty text is one empty part.
std::vector<std::string> comma_list(std::string_view text);
// The index of `text` among `words`. Throws InputError that lists them if it is none.
size_t choose(const std::string& text, const std::vector<std::string>& words);
RunOptions::DeviceWish read_device(const std::string& text);
// "zero2" or "2". Throws InputError with the list otherwise, as the next two do.
StageKind read_stage(const std::string& text);
Dtype read_precision(const std::string& text);  // "bf16"
// "zero1,zero3": a list of them, returned in the order of the stages without doubles; or "all".
// Names of presets go to `presets`; without it they are errors.
std::vector<StageKind> read_stages(const std::string& text,
                                   std::vector<const Preset*>* presets = nullptr);
const char* precision_name(Dtype dtype);  // "fp32", "bf16", "fp16"

// Adds the flags that `flags.command()` shares with other commands. `options` must outlive the
// program's run.
void add_shared_flags(Flags& flags, RunOptions& options);
// --stages; `presets`: they may be listed too
void add_stages_flag(Flags& flags, std::vector<StageKind>& stages,
                     std::vector<const Preset*>* presets = nullptr);
std::string variants_help();  // what --help says of the variants, after a list of the paper's four
// Throws UsageError if a flag about groups is given and none of the stages has groups. `machine`:
// the size of a node is its own.
void require_groups_used(const ConfigSource& source, const std::vector<StageKind>& stages,
                         bool machine = false);

}  // namespace zl::cli
