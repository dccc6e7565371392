// What one row of the table cannot say: where keys depend on each other, as in DeepSpeed 0.19.8
// (runtime/config.py, runtime/engine.py, runtime/lr_schedules.py, runtime/precision_config.py,
// runtime/zero/config.py).

#include <algorithm>

#include "dist/run_ranks.h"
#include "stages/deepspeed/reading.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"

namespace zl {
namespace {

using enum ConfigFinding::Severity;

// Batch sizes: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps *
// ranks. Two of the three keys give the third. One gives the others, with floor division.

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";

void apply_batch(Reading& r) {
  for (const char* key : {kTrain, kMicro, kAccumulation})
    if (r.is_wrong(key)) return;  // arithmetic with it would only confuse
  Config& c = r.config;
  const int64_t ranks = readers(c, r.source.ranks), train = c.train_batch_size, most = 1 << 20;
  const bool micro = r.value(kMicro), accumulation = r.value(kAccumulation);
  const std::string over = str(ranks, ranks == 1 ? " rank" : " ranks");
  if (train == 0) {
    const std::string product = str(c.micro_batch, " * ", c.accumulation, " * ", over);
    c.train_batch_size = c.micro_batch * c.accumulation * ranks;
    r.derive(kTrain, product);
    const bool automatic = r.is_auto(kTrain) || r.is_auto(kMicro);
    if (!micro && !r.source.file.empty())
      r.add(
          automatic ? note : warning, kTrain, "this and ", kMicro,
          automatic ? " are \"auto\" or absent" : " are absent, and DeepSpeed refuses such a file",
          "; zerolab takes ", product, " = ", c.train_batch_size);
    return;
  }
  // What is given makes steps of multiples of this.
  const int64_t per_rank = (micro ? c.micro_batch : 1) * (accumulation ? c.accumulation : 1),
                unit = per_rank * ranks, below = train / unit * unit;
  const std::string factors =
      str(over, micro ? str(" * ", c.micro_batch, " (", kMicro, ")") : "",
          accumulation ? str(" * ", c.accumulation, " (", kAccumulation, ")") : "", " = ", unit);
  if (!micro) {
    c.micro_batch = train / ranks / c.accumulation;
    r.derive(kMicro, train, " / ", over, " / ", c.accumulation);
  } else if (!accumulation) {
    c.accumulation = train / c.micro_batch / ranks;
    r.derive(kAccumulation, train, " / ", c.micro_batch, " / ", over);
  }
  const bool other_ranks = train % per_rank == 0 && train / per_rank <= kMostRanks;
  if (micro && accumulation && train != unit)
    r.add(error, kTrain, train, " is not ", factors, ". Use ", unit, ", leave one of the three out",
          other_ranks ? str(", or run with --ranks ", train / per_rank) : "");
  else if (train % unit != 0)
    r.add(error, kTrain, train,
          micro || accumulation ? " is not a multiple of " + factors
                                : " cannot be split evenly over " + over,
          ". Use ", below > 0 ? str(below, " or ") : "", below + unit);
  else if (std::max(c.micro_batch, c.accumulation) > most)
    r.add(error, kTrain, train, " is more than ", most, " for ", micro ? kAccumulation : kMicro);
}

void apply_optimizer(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  const std::string params = "optimizer.params.", torch = params + "torch_adam",
                    decay = params + "weight_decay";
  const JsonValue *block = r.value("optimizer"), *type = r.value("optimizer.type");
  if (block && r.is_in_file(*block) && !r.has("optimizer.type"))
    r.add(note, "optimizer.type", "is absent: zerolab uses AdamW; DeepSpeed creates no optimizer");
  if (!o.decoupled && (!type || lower_case(type->text) == "adamw")) {  // "Adam" means AdamW too
    o.decoupled = true;
    r.add(warning, params + "adam_w_mode",
          "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
  }
  // torch.optim.AdamW has another default than torch.optim.Adam and DeepSpeed's own classes.
  if (!r.is_on(torch) || !o.decoupled || r.value(decay) || r.is_auto(decay)) return;
  o.weight_decay = 0.01;
  r.loaded.origins[decay] = r.value(torch)->where + ": " + torch;
}

void apply_scheduler(Reading& r) {
  ScheduleConfig& s = r.config.schedule;
  const bool warmup = s.kind == ScheduleKind::warmup;
  const std::string most = "scheduler.params.warmup_max_lr",
                    total = "scheduler.params.total_num_steps";
  if (r.has("scheduler") && !r.has("scheduler.type"))
    r.add(warning, "scheduler.type", "is absent: there is no schedule, as in DeepSpeed");
  if (s.kind == ScheduleKind::constant) return;
  if (!warmup && !r.value(total)) {
    s.total_num_steps = r.config.steps;
    r.derive(total, "the run's steps");
    if (r.is_auto(total))
      r.add(note, total, "is \"auto\": ", s.total_num_steps, ", the steps of this run");
    else if (!r.is_wrong(total))
      r.add(error, total, "is required: the step at which the rate reaches its end");
  }
  if (r.value(most) || !(warmup || r.is_auto(most))) return;
  s.warmup_max_lr = r.config.optimizer.lr;  // WarmupDecayLR's default is 0.001
  r.derive(most, "the optimizer's rate");
}

void apply_precision(Reading& r) {
  Config& c = r.config;
  if (r.is_on("fp16.enabled") && r.is_on("bf16.enabled"))
    r.add(error, "bf16.enabled", "fp16 is enabled too; leave one of the two out");
  const char* automatic = r.is_auto("bf16.enabled") ? "bf16.enabled" : "fp16.enabled";
  if (r.is_auto(automatic) && c.precision == Dtype::f32 && !r.source.precision)
    r.add(note, automatic, "is \"auto\": fp32 is taken; --precision chooses another type");
  const std::string sum = "data_types.grad_accum_dtype";
  const Dtype precision = r.as_run().precision;
  // The scale and its reciprocal must be normal fp32 numbers.
  if (const double n = c.loss_scale.static_scale; n != 0 && (n < 0x1p-126 || n > 0x1p126))
    r.add(error, "fp16.loss_scale", "expected 0 or a number from 2^-126 to 2^126, not ", n);
  if (precision != Dtype::f16) c.loss_scale = {};
  if (c.loss_scale.min_scale < 1)  // files that scale nothing have 0
    r.add(error, "fp16.min_loss_scale", "must be at least 1 where losses are scaled");
  if (c.grad_accum_dtype.value_or(Dtype::f32) != Dtype::f32 && c.grad_accum_dtype != precision)
    r.add(error, sum, r.value(sum)->text, " is neither fp32 nor the type of this run's gradients");
}

const std::string kZero = "zero_optimization.";

// A preset chooses the stage that it changes.
void apply_preset(Reading& r) {
  Config& c = r.config;
  if (r.as_run().as != "deepspeed-3") {
    c.persistence_threshold.reset();
    r.derive(kZero + "stage3_param_persistence_threshold", "zerolab shards every parameter");
  }
  const Preset* preset = find_preset(c.as);
  if (preset == nullptr) return;
  if (r.value(kZero + "stage") && c.stage != preset->parent)
    r.add(error, kZero + "stage", "is ", stage_number(c.stage), ", but zerolab.as is \"", c.as,
          "\", which is a stage ", stage_number(preset->parent), "; leave one of the two out");
  c.stage = preset->parent;
  if (!r.source.several_stages)
    r.add(note, "zerolab.as", c.as, " is predicted, not run: 'zerolab compare' and 'zerolab plan' ",
          "show what it keeps and sends; ", name(r.as_run().stage), " runs");
}

// Each key of ZeRO++ and HSDP makes stage 3 the variant of that name. A flag for the stage wins,
// and where several stages run, the keys choose none.
void apply_variants(Reading& r) {
  Config& c = r.config;
  const ConfigSource& s = r.source;
  if (c.ranks_per_node == 1) c.ranks_per_node = 0;  // DeepSpeed's 1: off
  if (c.stage != StageKind::zero3 || !c.as.empty() || (s.stage && !s.several_stages)) return;
  std::string first;
  // `group` divides the ranks.
  const auto choose = [&](bool given, const std::string& key, const char* stage, int64_t group) {
    if (!given) return;
    if (!first.empty())
      return r.add(error, key, "this key and ", first,
                   " each select a stage, and no stage does both; keep one, or give --stage ",
                   stage);
    first = key;
    if (s.several_stages) return;
    c.stage = StageKind(stage);
    if (s.ranks > 1 && s.ranks % group != 0)
      r.add(error, key, group, " does not divide ", s.ranks, " ranks");
  };
  choose(c.zero_quantized_weights, kZero + "zero_quantized_weights", "zero3_qwz", 1);
  choose(c.zero_quantized_gradients, kZero + "zero_quantized_gradients", "zero3_qgz", 1);
  choose(c.ranks_per_node > 0, kZero + "zero_hpz_partition_size", "zero3_hpz",
         s.ranks_per_node > 0 ? s.ranks_per_node : c.ranks_per_node);
  choose(c.replicas > 1, "zerolab.replicas", "hsdp", s.replicas > 0 ? s.replicas : c.replicas);
}

void apply_offload(Reading& r) {
  Config& c = r.config;
  const std::string optimizer = kZero + "offload_optimizer", param = kZero + "offload_param",
                    old = kZero + "cpu_offload";  // the name that offload_optimizer had
  if (r.value(old) && r.has(optimizer)) {
    r.add(error, old, "leave it out: offload_optimizer replaces it, and is given too");
  } else if (r.value(old)) {
    r.add(warning, old, "is deprecated: write \"offload_optimizer\": {\"device\": \"",
          name(c.offload_optimizer), "\"}");
    r.loaded.origins[optimizer + ".device"] = r.value(old)->where + ": " + old;
  }
  const auto check_folder = [&](const std::string& block, OffloadDevice device, std::string& path) {
    if (device != OffloadDevice::nvme)
      path.clear();
    else if (path.empty())
      r.add(error, block + ".device", "nvme needs nvme_path: the folder in which the file is made");
  };
  check_folder(optimizer, c.offload_optimizer, c.nvme_path);
  check_folder(param, c.offload_param, c.param_nvme_path);
  if (c.nvme_path.empty())
    c.nvme_path = c.param_nvme_path;
  else if (!c.param_nvme_path.empty() && c.param_nvme_path != c.nvme_path)
    r.add(error, param + ".nvme_path", "is ", c.param_nvme_path, ", but offload_optimizer's is ",
          c.nvme_path, ": a rank makes one file; write the same");
  c.swap.sub_group_size = std::max<int64_t>(c.swap.sub_group_size, 1);  // DeepSpeed takes 0
  if (c.offload_param != OffloadDevice::none && r.as_run().stage == StageKind("zero3_qwz"))
    r.add(error, param, "leave it out: zero3_qwz quantizes its parameter shard on the device");
}

// Each key asks for activation checkpointing, so that it selects what zerolab calls "full".
void apply_activations(Reading& r) {
  Config& c = r.config;
  const std::string recompute = "zerolab.recompute";
  if (c.partition_activations && !c.replicated_micro_batches) {
    c.partition_activations = false;
    r.loaded.origins.erase("activation_checkpointing.partition_activations");
  }
  if (!c.cpu_checkpointing && c.checkpoints == 0 && !c.partition_activations) return;
  if (r.value(recompute) && c.recompute != Recompute::full)
    r.add(error, recompute, "is \"", name(c.recompute), "\", and activation_checkpointing needs ",
          "\"full\"; write that, or leave one of the two out");
  c.recompute = Recompute::full;
  if (!r.value(recompute)) r.derive(recompute, "activation_checkpointing asks for it");
}

}  // namespace

void apply_rules(Reading& r) {
  Config& c = r.config;
  if (!c.ordered && !c.reproducible)
    r.add(note, "zerolab.ordered",
          "false lets NCCL or MPI choose the order of sums, so stages agree except for rounding; "
          "ranks without them still add in rank order");
  for (const auto apply : {apply_batch, apply_optimizer, apply_scheduler, apply_precision,
                           apply_preset, apply_variants, apply_offload, apply_activations})
    apply(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (c.defaults == "deepspeed" && !r.value(kZero + "overlap_comm"))
    c.overlap.overlap_comm = shards_parameter(r.as_run().stage);
}

}  // namespace zl
