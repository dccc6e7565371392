// What one row of the table cannot say: where keys depend on each other, as in DeepSpeed 0.19.8
// (runtime/config.py, runtime/engine.py, runtime/lr_schedules.py, runtime/precision_config.py,
// runtime/zero/config.py).

#include <algorithm>
#include <tuple>

#include "stages/deepspeed/reading.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"

namespace zl {
namespace {

using enum ConfigFinding::Severity;

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";

// train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks. Two of
// the three keys give the third. One gives the others, with floor division.
void apply_batch(Reading& r) {
  for (const char* key : {kTrain, kMicro, kAccumulation})
    if (r.is_wrong(key)) return;  // arithmetic with it would only confuse
  Config& c = r.config;
  const int64_t ranks = r.source.ranks;
  int64_t &train = c.train_batch_size, unit = ranks;  // what is given makes multiples of the unit
  const bool micro = r.value(kMicro), accumulation = r.value(kAccumulation);
  const std::string over = str(ranks, ranks == 1 ? " rank" : " ranks");
  std::string product = over;
  for (const auto& [key, n] : {std::pair(kMicro, c.micro_batch), {kAccumulation, c.accumulation}})
    if (r.value(key)) unit *= n, product += str(" * ", n, " (", key, ")");
  const bool all = micro && accumulation;
  if (train == 0) {
    train = c.micro_batch * c.accumulation * ranks;
    product = str(c.micro_batch, " * ", c.accumulation, " * ", over);
    r.derive(kTrain, product);
    if (!micro && !r.source.file.empty())
      r.add(r.is_auto(kTrain) || r.is_auto(kMicro) ? note : warning, kTrain, "this and ", kMicro,
            " are absent or \"auto\", and DeepSpeed needs one of them; zerolab takes ", product,
            " = ", train);
  } else if (all && train != unit) {
    r.add(error, kTrain, train, " is not ", product, " = ", unit, ". Use ", unit,
          ", or leave one of them out");
  } else if (train % unit != 0) {
    const int64_t below = train / unit * unit;
    r.add(error, kTrain, train, " is not a multiple of ", product,
          unit == ranks ? "" : str(" = ", unit), ". Use ", below > 0 ? str(below, " or ") : "",
          below + unit);
  } else if (!micro) {
    c.micro_batch = train / ranks / c.accumulation;
    r.derive(kMicro, train, " / ", over, " / ", c.accumulation);
  } else if (!accumulation) {
    c.accumulation = train / c.micro_batch / ranks;
    r.derive(kAccumulation, train, " / ", c.micro_batch, " / ", over);
  }
}

void apply_optimizer(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  const std::string torch = "optimizer.params.torch_adam", decay = "optimizer.params.weight_decay";
  const Reading::Given *block = r.value("optimizer"), *type = r.value("optimizer.type");
  if (block && r.in_file(block->where) && !r.has("optimizer.type"))
    r.add(note, "optimizer.type", "is absent: zerolab uses AdamW; DeepSpeed creates no optimizer");
  if (!o.decoupled && (!type || lower_case(type->json) == "\"adamw\"")) {  // "Adam" means AdamW too
    o.decoupled = true;
    r.add(warning, "optimizer.params.adam_w_mode",
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
  if (!warmup && r.is_auto(total)) {
    s.total_num_steps = r.config.steps;
    r.derive(total, "the run's steps");
    r.add(note, total, "is \"auto\": ", s.total_num_steps, ", the steps of this run");
  } else if (!warmup && !r.has(total)) {
    r.add(error, total, "is required: the step at which the rate reaches its end");
  }
  if (r.value(most) || !(warmup || r.is_auto(most))) return;
  s.warmup_max_lr = r.config.optimizer.lr;  // WarmupDecayLR's default is 0.001
  r.derive(most, "the optimizer's rate");
}

void apply_precision(Reading& r) {
  const char* automatic = r.is_auto("bf16.enabled") ? "bf16.enabled" : "fp16.enabled";
  if (r.is_on("fp16.enabled") && r.is_on("bf16.enabled"))
    r.add(error, "bf16.enabled", "fp16 is enabled too; leave one of the two out");
  if (r.is_auto(automatic) && r.config.precision == Dtype::f32 && !r.source.precision)
    r.add(note, automatic, "is \"auto\": fp32 is taken; --precision chooses another type");
  if (r.as_run().precision != Dtype::f16) r.config.loss_scale = {};
}

const std::string kZero = "zero_optimization.";

// A preset chooses the stage that it changes.
void apply_preset(Reading& r) {
  Config& c = r.config;
  if (r.as_run().as != "deepspeed-3") c.persistence_threshold.reset();
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
  const int64_t node = s.ranks_per_node > 0 ? s.ranks_per_node : c.ranks_per_node,
                replicas = s.replicas > 0 ? s.replicas : c.replicas;
  // The key, whether it is on, its stage, and what must divide the ranks.
  const std::tuple<std::string, bool, const char*, int64_t> keys[] = {
      {kZero + "zero_quantized_weights", c.zero_quantized_weights, "zero3_qwz", 1},
      {kZero + "zero_quantized_gradients", c.zero_quantized_gradients, "zero3_qgz", 1},
      {kZero + "zero_hpz_partition_size", c.ranks_per_node > 0, "zero3_hpz", node},
      {"zerolab.replicas", c.replicas > 1, "hsdp", replicas}};
  std::string first;
  for (const auto& [key, chosen, stage, group] : keys) {
    if (!chosen) continue;
    if (!first.empty())
      r.add(error, key, "this key and ", first,
            " each select a stage, and no stage does both; keep one, or give --stage ", stage);
    else if (!s.several_stages && s.ranks > 1 && s.ranks % group != 0)
      r.add(error, key, group, " does not divide ", s.ranks, " ranks");
    if (first.empty() && !s.several_stages) c.stage = StageKind(stage);
    first = key;
  }
}

void apply_offload(Reading& r) {
  Config& c = r.config;
  const std::string old = kZero + "cpu_offload";  // the name that offload_optimizer had
  if (r.value(old) && r.has(kZero + "offload_optimizer")) {
    r.add(error, old, "leave it out: offload_optimizer replaces it, and is given too");
  } else if (r.value(old)) {
    r.add(warning, old, "is deprecated: write \"offload_optimizer\": {\"device\": \"",
          name(c.offload_optimizer), "\"}");
    r.loaded.origins[kZero + "offload_optimizer.device"] = r.value(old)->where + ": " + old;
  }
  if (c.offload_optimizer != OffloadDevice::nvme) c.nvme_path.clear();
  if (c.offload_param != OffloadDevice::nvme) c.param_nvme_path.clear();
  if (c.nvme_path.empty()) c.nvme_path = c.param_nvme_path;
  c.swap.sub_group_size = std::max<int64_t>(c.swap.sub_group_size, 1);  // DeepSpeed takes 0
}

// Each key asks for activation checkpointing, so that it selects what zerolab calls "full".
void apply_activations(Reading& r) {
  Config& c = r.config;
  const std::string key = "zerolab.recompute";
  if ((!c.cpu_checkpointing && c.checkpoints == 0) || c.recompute == Recompute::full) return;
  if (r.value(key))
    r.add(error, key, "activation_checkpointing needs \"full\"; write that, or leave one out");
  c.recompute = Recompute::full;
  r.derive(key, "activation_checkpointing asks for it");
}

}  // namespace

void apply_rules(Reading& r) {
  if (!r.config.ordered && !r.config.reproducible)
    r.add(note, "zerolab.ordered",
          "false lets NCCL choose the order of sums, so stages agree except for rounding; "
          "ranks without NCCL still add in rank order");
  for (const auto apply : {apply_batch, apply_optimizer, apply_scheduler, apply_precision,
                           apply_preset, apply_variants, apply_offload, apply_activations})
    apply(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (r.config.defaults == "deepspeed" && !r.value(kZero + "overlap_comm"))
    r.config.overlap.overlap_comm = shards_parameter(r.as_run().stage);
}

}  // namespace zl
