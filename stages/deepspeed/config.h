// The settings of a run: DeepSpeed's keys that are honoured, and our own block "zerolab".
//
// Precedence: default < config file < --set < flag. A key that is absent takes our default; what
// changes the update (clipping, the optimizer's defaults) follows DeepSpeed 0.19 whenever a config
// file is given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optim/flat_optimizer.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "stages/stage.h"

namespace zl {

// comms_logger: which collectives are told of, and when.
struct CommsLogger {
  bool enabled = false;
  bool verbose = false;               // one line per call, as it ends
  bool prof_all = true;               // in the table at the end; false: prof_ops only
  std::vector<std::string> prof_ops;  // "all_reduce", "reduce_scatter", …
  bool debug = false;                 // verbose lines name the purpose and the unit too
};

// csv_monitor: DeepSpeed's files <output_path>/<job_name>/Train_Samples_*.csv.
struct CsvMonitor {
  bool enabled = false;
  std::string output_path, job_name = "DeepSpeedJobName";
};

struct Config {
  // Batch: each rank takes `micro_batch` windows per micro-batch and `accumulation` micro-batches
  // per step.
  int64_t micro_batch = 4;       // train_micro_batch_size_per_gpu
  int64_t accumulation = 1;      // gradient_accumulation_steps
  double gradient_clipping = 0;  // 0: off. With a config file: 1.0 unless it says otherwise
  OptimizerConfig optimizer;     // with separate_master and no_weight_decay of the "zerolab" block
  ScheduleConfig schedule;

  // Precision. Parameters, gradients and activations are stored in `precision`; arithmetic is fp32.
  Dtype precision = Dtype::f32;  // f32, or bf16.enabled, fp16.enabled
  LossScaleConfig loss_scale;    // fp16; else the scale is 1
  bool check_grad_overflow =
      true;  // bf16; false: a step is made even if its gradient is not finite
  std::optional<Dtype>
      communication_data_type;  // of gradients on their way; empty: as they are accumulated
  std::optional<Dtype> grad_accum_dtype;  // f32 or `precision`; empty: `precision`

  // zero_optimization
  std::optional<StageKind> stage;                             // as the file says; the flag wins
  int64_t reduce_bucket_size = 1, allgather_bucket_size = 1;  // [n]
  bool offload_optimizer =
      false;  // offload_optimizer.device is "cpu"; ddp keeps its state on the device all the same

  // What is printed and written beside the run.
  std::optional<int64_t> steps_per_print;  // at least 1
  bool wall_clock_breakdown = false;
  CommsLogger comms_logger;
  CsvMonitor csv_monitor;

  // "zerolab"
  bool recompute = false;
  bool ordered = true;  // sums over ranks in rank order, also where NCCL moves the data
  std::optional<std::string> model, data;
  uint64_t seed = 1337;
  int64_t steps = 100;

  bool from_file = false;  // a file or --set was given
};

// One remark about a configuration, for people.
struct ConfigFinding {
  enum class Severity { note, warning, error } severity;
  std::string where;  // "ds.json:7" or "--set gradient_clipping"
  std::string text;   // what is so, in a sentence or two
  std::string key;    // "zero_optimization.overlap_comm"; empty: none
};
// "ds.json:7: warning: zero_optimization.overlap_com: not yet honoured: …" in one line.
std::string to_string(const ConfigFinding& finding);
const char* name(ConfigFinding::Severity severity);

struct ConfigSource {
  std::string file;               // empty: none
  std::vector<std::string> sets;  // "a.b=value", in order
  int ranks = 1;                  // for the batch triangle
  std::optional<Dtype>
      precision;  // of a flag, which wins over the file's: other types are judged by it
  std::optional<StageKind> stage;  // likewise
  bool several_stages =
      false;  // whatever the file says, several run: none of them is a reason to refuse anything
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigFinding> findings;
  // Where each honoured key that was given comes from: "zerolab.seed" → "ds.json:9" or "--set
  // zerolab.seed".
  std::map<std::string, std::string> origins;
  std::map<std::string, std::string>
      automatic;  // the same, of those that are "auto": the default holds
  std::map<std::string, std::string>
      derived;  // batch keys that the others give: "32 / 4 ranks / 1"
  int ranks = 1;
  bool deepspeed_defaults = false;  // absent keys take DeepSpeed's
  bool ok() const;                  // no finding is an error
};

// Reads the file and applies each --set to it. Findings are collected, all of them; if any is an
// error the Config must not be used. Throws InputError if the file cannot be read, or is not a JSON
// object with DeepSpeed's freedoms: comments, and commas before a closing bracket.
LoadedConfig load_config(const ConfigSource& source);

}  // namespace zl
