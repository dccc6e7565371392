// What one row of the table cannot say: where keys depend on each other, as in DeepSpeed 0.19.8
// (runtime/config.py, runtime/engine.py, runtime/lr_schedules.py, runtime/precision_config.py,
// runtime/zero/config.py).

#include <algorithm>
#include <cstring>
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
  const bool micro = r.value(kMicro), all = micro && r.value(kAccumulation);
  const std::string ranks = str(r.source.ranks, r.source.ranks == 1 ? " rank" : " ranks");
  std::string product = ranks;
  int64_t &train = c.train_batch_size,
          unit = r.source.ranks;  // what is given makes multiples of it
  for (const auto& [key, n] : {std::pair(kMicro, c.micro_batch), {kAccumulation, c.accumulation}})
    if (r.value(key)) unit *= n, product += str(" * ", n, " (", key, ")");
  const int64_t below = train / unit * unit;
  if (train == 0) {
    train = c.micro_batch * c.accumulation * r.source.ranks;
    product = str(c.micro_batch, " * ", c.accumulation, " * ", ranks);
    r.derive(kTrain, product);
    if (!micro && !r.source.file.empty())
      r.add(r.is_auto(kTrain) || r.is_auto(kMicro) ? note : warning, kTrain, "this and ", kMicro,
            " are absent or \"auto\", and DeepSpeed needs one of them; zerolab takes ", product,
            " = ", train);
  } else if (below != train || (all && train != unit)) {
    r.add(error, kTrain, train, all ? " is not " : " is not a multiple of ", product,
          product == ranks ? "" : str(" = ", unit), ". Use ",
          !all && below > 0 ? str(below, " or ") : "", all ? unit : below + unit,
          all ? ", or leave one of them out" : "");
  } else if (!micro) {
    c.micro_batch = train / unit;
    r.derive(kMicro, train, " / ", ranks, " / ", c.accumulation);
  } else if (!all) {
    c.accumulation = train / unit;
    r.derive(kAccumulation, train, " / ", c.micro_batch, " / ", ranks);
  }
}

// The types and what their parameters mean: of numbers, the optimizer, the schedule.
void apply_types(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  ScheduleConfig& s = r.config.schedule;
  const std::string torch = "optimizer.params.torch_adam", decay = "optimizer.params.weight_decay",
                    most = "scheduler.params.warmup_max_lr",
                    total = "scheduler.params.total_num_steps",
                    automatic = r.is_auto("bf16.enabled") ? "bf16.enabled" : "fp16.enabled";
  if (r.is_on("fp16.enabled") && r.is_on("bf16.enabled"))
    r.add(error, "bf16.enabled", "fp16 is enabled too; leave one of the two out");
  if (r.is_auto(automatic) && r.config.precision == Dtype::f32 && !r.source.precision)
    r.add(note, automatic, "is \"auto\": fp32 is taken; --precision chooses another type");
  if (r.as_run().precision != Dtype::f16) r.config.loss_scale = {};
  const Reading::Given *block = r.value("optimizer"), *type = r.value("optimizer.type");
  if (block && r.in_file(block->where) && !r.has("optimizer.type"))
    r.add(note, "optimizer.type", "is absent: zerolab uses AdamW; DeepSpeed creates no optimizer");
  if (!o.decoupled && (!type || strcasecmp(type->json.c_str(), "\"AdamW\"") == 0)) {
    o.decoupled = true;
    r.add(warning, "optimizer.params.adam_w_mode",
          "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
  }
  // torch.optim.AdamW has another default than torch.optim.Adam and DeepSpeed's own classes.
  if (r.is_on(torch) && o.decoupled && !r.value(decay) && !r.is_auto(decay)) {
    o.weight_decay = 0.01;
    r.loaded.origins[decay] = r.value(torch)->where + ": " + torch;
  }
  if (r.has("scheduler") && !r.has("scheduler.type"))
    r.add(warning, "scheduler.type", "is absent: there is no schedule, as in DeepSpeed");
  if (s.kind == ScheduleKind::constant) return;
  const bool warmup = s.kind == ScheduleKind::warmup;
  if (!warmup && r.is_auto(total)) {
    s.total_num_steps = r.config.steps;
    r.derive(total, "the run's steps");
    r.add(note, total, "is \"auto\": ", s.total_num_steps, ", the steps of this run");
  } else if (!warmup && !r.has(total)) {
    r.add(error, total, "is required: the step at which the rate reaches its end");
  }
  if (r.value(most) || !(warmup || r.is_auto(most))) return;
  s.warmup_max_lr = o.lr;  // WarmupDecayLR's default is 0.001
  r.derive(most, "the optimizer's rate");
}

const std::string kZero = "zero_optimization.";

// A preset chooses the stage that it changes. Each key of ZeRO++ and HSDP makes stage 3 the variant
// of that name. A flag for the stage wins, and where several stages run, the keys choose none.
void apply_stage(Reading& r) {
  Config& c = r.config;
  const ConfigSource& s = r.source;
  if (r.as_run().as != "deepspeed-3")
    c.persistence_threshold = 0;
  else if (!r.value(kZero + "stage3_param_persistence_threshold"))
    c.persistence_threshold = 100'000;  // DeepSpeed's, with zerolab's other defaults too
  if (const Preset* preset = find_preset(c.as)) {
    if (r.value(kZero + "stage") && c.stage != preset->parent)
      r.add(error, kZero + "stage", "is ", stage_number(c.stage), ", but zerolab.as is \"", c.as,
            "\", which is a stage ", stage_number(preset->parent), "; leave one of the two out");
    c.stage = preset->parent;
    if (!s.several_stages)
      r.add(note, "zerolab.as", c.as, " is predicted, not run: 'zerolab compare' and 'zerolab ",
            "plan' show what it keeps and sends; ", name(r.as_run().stage), " runs");
  }
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

// What is kept elsewhere than on the device, or not at all.
void apply_memory(Reading& r) {
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
  if (r.value("zerolab.recompute") || !(c.cpu_checkpointing || c.checkpoints > 0)) return;
  c.recompute = Recompute::full;  // what DeepSpeed calls activation checkpointing
  r.derive("zerolab.recompute", "activation_checkpointing asks for it");
}

}  // namespace

void apply_rules(Reading& r) {
  if (!r.config.ordered && !r.config.reproducible)
    r.add(note, "zerolab.ordered",
          "false lets NCCL choose the order of sums, so stages agree except for rounding; "
          "ranks without NCCL still add in rank order");
  apply_batch(r);
  apply_types(r);
  apply_stage(r);
  apply_memory(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (r.config.defaults == "deepspeed" && !r.value(kZero + "overlap_comm"))
    r.config.overlap.overlap_comm = shards_parameter(r.as_run().stage);
}

}  // namespace zl
