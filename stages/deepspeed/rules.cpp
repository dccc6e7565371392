// What one row of the table cannot say: where keys depend on each other, as in DeepSpeed 0.19.8
// (runtime/config.py, runtime/engine.py, runtime/lr_schedules.py, runtime/precision_config.py,
// runtime/zero/config.py).

#include <algorithm>

#include "dist/run_ranks.h"
#include "stages/deepspeed/reading.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl {
namespace {

using enum ConfigFinding::Severity;

// Batch sizes: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps *
// ranks. Two of the three keys give the third. One gives the others, with floor division.

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";

std::string count_ranks(int64_t ranks) { return str(ranks, ranks == 1 ? " rank" : " ranks"); }

// Why train_batch_size is not what one step of all ranks takes, and what to write. Both flags: the
// key is given, so that the product must be train_batch_size.
std::string contradiction(const Config& c, bool micro, bool accumulation, int64_t ranks) {
  const int64_t train = c.train_batch_size,
                per_rank = (micro ? c.micro_batch : 1) * (accumulation ? c.accumulation : 1),
                unit = per_rank * ranks, below = train / unit * unit;
  const std::string product =
      str(micro ? str(c.micro_batch, " (", kMicro, ") * ") : "",
          accumulation ? str(c.accumulation, " (", kAccumulation, ") * ") : "", count_ranks(ranks));
  if (!micro || !accumulation)
    return str(train, " cannot be split over ", product, ": ", train, " / ", unit, " = ",
               train / unit, " remainder ", train % unit, ". Use ",
               below > 0 ? str(below, " or ") : "", below + unit);
  const bool other_ranks = train % per_rank == 0 && train / per_rank <= kMostRanks;
  return str(train, " is not ", product, " = ", unit, ". Use ", unit,
             ", leave one of the three out",
             other_ranks ? str(", or run with --ranks ", train / per_rank) : "");
}

void apply_batch(Reading& r) {
  for (const char* key : {kTrain, kMicro, kAccumulation})
    if (r.is_wrong(key)) return;  // arithmetic with it would only confuse
  Config& c = r.config;
  auto& derived = r.loaded.derived;
  const int64_t ranks = readers(c, r.source.ranks), train = c.train_batch_size, most = 1 << 20;
  const bool micro = r.value(kMicro), accumulation = r.value(kAccumulation);
  if (train == 0) {
    c.train_batch_size = c.micro_batch * c.accumulation * ranks;
    derived[kTrain] = str(c.micro_batch, " * ", c.accumulation, " * ", count_ranks(ranks));
    const std::string taken = str("; zerolab takes ", derived[kTrain], " = ", c.train_batch_size);
    if (micro || r.source.file.empty()) return;
    if (r.is_auto(kTrain) || r.is_auto(kMicro))
      r.add(note, kTrain, "this and ", kMicro, " are \"auto\" or absent", taken);
    else
      r.add(warning, kTrain, "neither this nor ", kMicro,
            " is given, and DeepSpeed refuses such a file", taken);
    return;
  }
  if (!micro) {
    c.micro_batch = train / ranks / c.accumulation;
    derived[kMicro] = str(train, " / ", count_ranks(ranks), " / ", c.accumulation);
  } else if (!accumulation) {
    c.accumulation = train / c.micro_batch / ranks;
    derived[kAccumulation] = str(train, " / ", c.micro_batch, " / ", count_ranks(ranks));
  }
  if (train != c.micro_batch * c.accumulation * ranks)
    r.add(error, kTrain, contradiction(c, micro, accumulation, ranks));
  else if (std::max(c.micro_batch, c.accumulation) > most)
    r.add(error, kTrain, train, " is more than ", most, " for ", micro ? kAccumulation : kMicro);
}

void apply_optimizer(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  const std::string params = "optimizer.params.", torch = params + "torch_adam",
                    decay = params + "weight_decay";
  const JsonValue* type = r.value("optimizer.type");
  if (r.has("optimizer") && r.is_in_file(*r.root().find("optimizer")) && !r.has("optimizer.type"))
    r.add(note, "optimizer.type", "is absent: zerolab takes AdamW, DeepSpeed no optimizer");
  if (o.kind == OptimizerKind::sgd && o.nesterov && (o.momentum == 0 || o.dampening != 0))
    r.add(error, params + "nesterov",
          "Nesterov momentum requires a momentum and zero dampening; momentum is ", o.momentum,
          " and dampening ", o.dampening);
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
  auto& derived = r.loaded.derived;
  const bool warmup = s.kind == ScheduleKind::warmup;
  const std::string most = "scheduler.params.warmup_max_lr",
                    total = "scheduler.params.total_num_steps";
  if (r.has("scheduler") && !r.has("scheduler.type"))
    r.add(warning, "scheduler.type", "is absent: there is no schedule, as in DeepSpeed");
  if (s.kind == ScheduleKind::constant) return;
  if (!warmup && !r.value(total)) {
    s.total_num_steps = r.config.steps;
    derived[total] = "the run's steps";
    if (r.is_auto(total))
      r.add(note, total, "is \"auto\": ", s.total_num_steps, ", the steps of this run");
    else if (!r.is_wrong(total))
      r.add(error, total, "is required: the step at which the rate reaches its end");
  }
  if (r.value(most) || !(warmup || r.is_auto(most))) return;
  s.warmup_max_lr = r.config.optimizer.lr;  // WarmupDecayLR's default is 0.001
  derived[most] = "the optimizer's rate";
}

void apply_precision(Reading& r) {
  Config& c = r.config;
  const bool fp16 = r.is_on("fp16.enabled"), bf16 = r.is_on("bf16.enabled");
  if (fp16 && bf16) r.add(error, "bf16.enabled", "fp16 is enabled too; leave one of the two out");
  c.precision = bf16 ? Dtype::bf16 : fp16 ? Dtype::f16 : Dtype::f32;
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
  const Preset* preset = find_preset(c.as);
  if (preset == nullptr) return;
  if (r.value(kZero + "stage") && c.stage != preset->parent)
    r.add(error, kZero + "stage", "is ", stage_number(c.stage), ", but zerolab.as is \"", c.as,
          "\", which is a stage ", stage_number(preset->parent), "; leave one of the two out");
  c.stage = preset->parent;
  if (!r.source.several_stages)
    r.add(note, "zerolab.as", c.as,
          " is predicted, not run: 'zerolab compare' and 'zerolab plan' show what it keeps and "
          "sends; ",
          name(r.as_run().stage), " runs");
}

// Each key of ZeRO++ and HSDP makes stage 3 the variant of that name. A flag for the stage wins,
// and where several stages run, the keys choose none.
void apply_variants(Reading& r) {
  Config& c = r.config;
  const ConfigSource& s = r.source;
  if (c.ranks_per_node == 1) c.ranks_per_node = 0;  // DeepSpeed's 1: off
  const bool flag = s.stage && !s.several_stages;
  const bool stage_3 = c.stage == StageKind::zero3 && !flag && c.as.empty();
  const std::string runs =
      s.several_stages ? "several stages run" : str(name(r.as_run().stage), " runs");
  // --stage of a variant with groups takes its size here.
  const VariantGroups taken = flag ? file_of(*s.stage).groups : VariantGroups::none;
  const bool hpz = c.ranks_per_node > 0 && taken == VariantGroups::none,
             hsdp = c.replicas > 1 && taken != VariantGroups::replicas;
  const int keys = c.zero_quantized_weights + c.zero_quantized_gradients + hpz + hsdp;
  const auto select = [&](const std::string& key, StageKind kind, int64_t group = 1) {
    if (flag && *s.stage == kind) return;
    if (stage_3 && keys > 1)
      r.add(error, key,
            "zerolab has a stage for each of these keys, and none for several together; keep one, "
            "or give --stage ",
            name(kind));
    else if (!stage_3 || s.several_stages)
      r.add(note, key, "has no effect: ", runs, "; it selects ", name(kind), " in stage 3");
    else if (c.stage = kind; s.ranks > 1 && s.ranks % group != 0)
      r.add(error, key, group, " does not divide ", s.ranks, " ranks");
  };
  if (c.zero_quantized_weights) select(kZero + "zero_quantized_weights", StageKind("zero3_qwz"));
  if (c.zero_quantized_gradients)
    select(kZero + "zero_quantized_gradients", StageKind("zero3_qgz"));
  if (hpz)
    select(kZero + "zero_hpz_partition_size", StageKind("zero3_hpz"),
           s.ranks_per_node > 0 ? s.ranks_per_node : c.ranks_per_node);
  if (hsdp) select("zerolab.replicas", StageKind("hsdp"), s.replicas > 0 ? s.replicas : c.replicas);
}

// The name that offload_optimizer had: "cpu" if it is on.
void apply_cpu_offload(Reading& r) {
  const std::string key = kZero + "cpu_offload";
  if (!r.value(key)) return;
  if (r.has(kZero + "offload_optimizer"))
    return r.add(error, key, "leave it out: offload_optimizer replaces it, and is given too");
  const OffloadDevice device = r.is_on(key) ? OffloadDevice::cpu : OffloadDevice::none;
  r.add(warning, key, "is deprecated: write \"offload_optimizer\": {\"device\": \"", name(device),
        "\"}");
  r.config.offload_optimizer = device;
  r.loaded.origins[kZero + "offload_optimizer.device"] = r.value(key)->where + ": " + key;
}

void apply_offload(Reading& r) {
  Config& c = r.config;
  const std::string optimizer = kZero + "offload_optimizer", param = kZero + "offload_param";
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
  if (const auto misfit = activations_misfit(c, 1); !misfit.empty())
    r.add(error, "zerolab.replicated_micro_batches", misfit);
  if (!c.cpu_checkpointing && c.checkpoints == 0 &&
      !(c.partition_activations && c.replicated_micro_batches))
    return;
  if (r.value(recompute) && c.recompute != Recompute::full)
    r.add(error, recompute, "is \"", name(c.recompute), "\", and activation_checkpointing needs ",
          "\"full\"; write that, or leave one of the two out");
  c.recompute = Recompute::full;
  r.loaded.derived[recompute] = "activation_checkpointing asks for it";
}

}  // namespace

void apply_rules(Reading& r) {
  Config& c = r.config;
  if (!c.ordered && !c.reproducible)
    r.add(note, "zerolab.ordered",
          "false lets NCCL or MPI choose the order of sums, so stages agree except for rounding; "
          "ranks without them still add in rank order");
  for (const auto apply :
       {apply_batch, apply_optimizer, apply_scheduler, apply_precision, apply_preset,
        apply_variants, apply_cpu_offload, apply_offload, apply_activations})
    apply(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (c.defaults == "deepspeed" && !r.value(kZero + "overlap_comm"))
    c.overlap.overlap_comm = shards_parameter(r.as_run().stage);
}

}  // namespace zl
