// The settings of a run: DeepSpeed's honoured keys and zerolab's own block "zerolab".
//
// Precedence: default < configuration file < --set < flag. An absent key takes zerolab's default.
// What changes the update (clipping, the optimizer's defaults) follows DeepSpeed 0.19 whenever a
// file is given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/formats/named_gpt.h"
#include "stages/options.h"

namespace zl {

// csv_monitor: DeepSpeed's files <output_path>/<job_name>/Train_Samples_*.csv.
// tensorboard: <output_path>/<job_name>/events.out.tfevents.*, one file per run.
struct Monitor {
  bool enabled = false;
  std::string output_path, job_name = "DeepSpeedJobName";
};

// What the engine takes, and what programs read beside it.
struct Config : Options {
  // A step of one rank takes `accumulation` micro-batches of `micro_batch` sequences.
  int64_t micro_batch = 4;  // train_micro_batch_size_per_gpu
  // Of a step of all ranks. 0 before the file is read, and if one of the three keys is wrong.
  int64_t train_batch_size = 0;
  std::string as;                     // the preset of "zerolab", which is predicted; "": none
  int64_t persistence_threshold = 0;  // [n] of deepspeed-3, else 0
  int64_t checkpoints = 0;  // number_checkpoints, which implies Recompute::full; 0: each block

  // As they are given; `stage` and `nvme_path` are what the run has.
  bool zero_quantized_weights = false, zero_quantized_gradients = false;
  std::string param_nvme_path;  // of offload_param

  // Reports
  Monitor csv_monitor, tensorboard;

  // "zerolab"
  Recompute recompute = Recompute::selective;
  bool ordered = true;            // sum over ranks in rank order, also on NCCL
  std::string defaults = "ours";  // of absent keys
  std::string model = "small";
  std::optional<std::string> data;
  int64_t steps = 100;
};

// One remark about a configuration, for people.
struct ConfigFinding {
  enum class Severity { note, warning, error } severity;
  std::string where;     // "ds.json:7" or "--set gradient_clipping"
  std::string text;      // one or two sentences
  std::string key;       // "zero_optimization.overlap_comm"; empty: none
  bool of_flag = false;  // a flag of this run replaces the value
};
// One line: "ds.json:7: warning: zero_optimisation: unknown key; …".
std::string to_string(const ConfigFinding& finding);
const char* name(ConfigFinding::Severity severity);

// A flag that gives the value of one key, such as "--steps" that of "zerolab.steps".
struct KeyFlag {
  std::string flag, key, text;
  bool is_string = true;  // else the text is JSON: a number or true
};

struct ConfigSource {
  std::string file;               // empty: none
  std::vector<std::string> sets;  // "a.b=value", in order
  int ranks = 1;                  // for the batch sizes
  std::vector<KeyFlag> flags;     // a note says which value one replaces
  // Flags that are not the value of one key. They too win over the file.
  std::optional<Dtype> precision;
  std::optional<StageKind> stage;
  int64_t ranks_per_node = 0, replicas = 0;  // 0: not given
  bool several_stages = false;  // the run compares stages: no key is an error for one of them
};

struct LoadedConfig {
  Config config;
  // In the order of the file's lines; those about --set and flags come last.
  std::vector<ConfigFinding> findings;
  // Where each value and each block is given: "zerolab.seed" → "ds.json:9", "--set zerolab.seed",
  // "--seed". Of a value that follows from others: "derived: 32 / 4 ranks / 1".
  std::map<std::string, std::string> origins;
  std::map<std::string, std::string> automatic;  // where a key is "auto": "ds.json:9"
  bool ok() const;                               // no finding is an error
};

// Reads the file, applies each --set and flag, and collects all findings. If one of them is an
// error, the Config must not be used. Throws InputError if the file cannot be read or is not one
// JSON object (comments and trailing commas are allowed).
LoadedConfig load_config(const ConfigSource& source);

// A setting as `config explain` prints it.
struct ConfigValue {
  std::string key;        // "zero_optimization.stage"
  std::string value;      // as JSON
  std::string origin;     // "ds.json:7", "--set …", "default", "derived: 32 / 4 ranks / 1", …
  std::string ours;       // zerolab's default as JSON; empty: none
  std::string deepspeed;  // DeepSpeed's; empty: none
  bool differ = false;    // both defaults exist and differ
};

// The honoured keys that this configuration uses (AdamW uses no momentum), in the order of the
// table.
std::vector<ConfigValue> effective_values(const LoadedConfig& loaded);

}  // namespace zl
