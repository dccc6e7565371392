// What one row of the schema cannot say: where keys depend on each other, as in DeepSpeed 0.19.8
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

// Batch sizes: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps *
// ranks. Two of the three keys give the third. One gives the others, with floor division.

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";

std::string count_ranks(int ranks) { return str(ranks, ranks == 1 ? " rank" : " ranks"); }

// All three keys are given, and train_batch_size is not their product.
std::string contradiction(int64_t train, const Config& c, int ranks) {
  const int64_t per_rank = c.micro_batch * c.accumulation;
  const bool other_ranks = train % per_rank == 0 && train / per_rank <= kMostRanks;
  return str(train, " is not ", c.micro_batch, " (", kMicro, ") * ", c.accumulation, " (",
             kAccumulation, ") * ", count_ranks(ranks), " = ", per_rank * ranks, ". Use ",
             per_rank * ranks, ", leave one of the three out",
             other_ranks ? str(", or run with --ranks ", train / per_rank) : "");
}

// What to write where train_batch_size is not a multiple of what one step of all ranks takes.
std::string remainder(int64_t train, bool micro, bool accumulation, const Config& c, int ranks) {
  std::string over = count_ranks(ranks);
  if (micro) over = str("micro-batches of ", c.micro_batch, " on ", over);
  if (accumulation) over = str(c.accumulation, " micro-batches on ", over);
  const int64_t unit = (micro ? c.micro_batch : 1) * (accumulation ? c.accumulation : 1) * ranks,
                below = train / unit * unit;
  return str(train, " cannot be split over ", over, ": ", train, " / ", unit, " = ", train / unit,
             " remainder ", train % unit, ". Use ", below > 0 ? str(below, " or ") : "",
             below + unit);
}

void apply_batch(Reading& r) {
  for (const char* key : {kTrain, kMicro, kAccumulation})
    if (r.is_wrong(key)) return;  // arithmetic with it would only confuse
  Config& c = r.config;
  auto& derived = r.loaded.derived;
  const int ranks = readers(c, r.source.ranks);
  const bool micro = r.value(kMicro), accumulation = r.value(kAccumulation);
  const int64_t train = c.train_batch_size;
  if (train == 0) {
    const std::string product =
        str(c.micro_batch, " * ", c.accumulation, " * ", count_ranks(ranks));
    const std::string taken =
        str("zerolab takes ", product, " = ", c.micro_batch * c.accumulation * ranks);
    derived[kTrain] = product;
    if (micro || r.source.file.empty()) return;
    if (r.is_auto(kTrain) || r.is_auto(kMicro))
      r.note(kTrain, str("this and ", kMicro, " are \"auto\" or absent; ", taken));
    else
      r.warn(kTrain, str("neither this nor ", kMicro,
                         " is given, and DeepSpeed refuses such a file; ", taken));
    return;
  }
  if (!micro)
    c.micro_batch = train / ranks / c.accumulation;
  else if (!accumulation)
    c.accumulation = train / c.micro_batch / ranks;
  const int64_t product = c.micro_batch * c.accumulation * ranks, most = 1 << 20;
  if (train != product && micro && accumulation)
    r.error(kTrain, contradiction(train, c, ranks));
  else if (train != product)
    r.error(kTrain, remainder(train, micro, accumulation, c, ranks));
  else if (std::max(c.micro_batch, c.accumulation) > most)
    r.error(kTrain, str(train, " is more than ", most, " for ", micro ? kAccumulation : kMicro));
  if (!micro) derived[kMicro] = str(train, " / ", count_ranks(ranks), " / ", c.accumulation);
  if (micro && !accumulation)
    derived[kAccumulation] = str(train, " / ", c.micro_batch, " / ", count_ranks(ranks));
}

void apply_optimizer(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  const std::string params = "optimizer.params.", torch = params + "torch_adam",
                    decay = params + "weight_decay";
  const JsonValue* type = r.value("optimizer.type");
  if (r.has("optimizer") && r.root().find("optimizer")->set < 0 && !r.has("optimizer.type"))
    r.note("optimizer.type", "is absent: zerolab takes AdamW, DeepSpeed would ignore this block");
  if (o.kind == OptimizerKind::sgd && o.nesterov && (o.momentum == 0 || o.dampening != 0))
    r.error(params + "nesterov",
            str("Nesterov momentum requires a momentum and zero dampening; momentum is ",
                o.momentum, " and dampening ", o.dampening));
  if (!o.decoupled && (!type || lower_case(type->text) == "adamw")) {  // "Adam" means AdamW too
    o.decoupled = true;
    r.warn(params + "adam_w_mode",
           "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
  }
  // torch.optim.AdamW has another default than torch.optim.Adam and DeepSpeed's own classes.
  if (!r.is_on(torch) || !o.decoupled || r.value(decay) || r.is_auto(decay)) return;
  o.weight_decay = 0.01;
  r.loaded.origins[decay] = r.where(*r.value(torch)) + ": " + torch;
}

void apply_total_steps(Reading& r) {
  const std::string key = "scheduler.params.total_num_steps";
  ScheduleConfig& s = r.config.schedule;
  if (r.value(key)) return;
  s.total_num_steps = r.config.steps;
  r.loaded.derived[key] = "the run's steps";
  if (!r.has(key))
    r.error(key, "is required by this schedule: the step at which the rate reaches its end");
  else if (r.is_auto(key))
    r.note(key, str("is \"auto\": ", s.total_num_steps, ", the steps of this run"));
}

void apply_scheduler(Reading& r) {
  ScheduleConfig& s = r.config.schedule;
  const std::string most = "scheduler.params.warmup_max_lr";
  if (r.has("scheduler") && !r.has("scheduler.type"))
    r.warn("scheduler.type", "is absent: there is no schedule, as in DeepSpeed");
  if (s.kind == ScheduleKind::constant) return;
  if (s.kind != ScheduleKind::warmup) apply_total_steps(r);
  if (r.value(most) || (s.kind != ScheduleKind::warmup && !r.is_auto(most))) return;
  s.warmup_max_lr = r.config.optimizer.lr;  // WarmupDecayLR's default is 0.001
  r.loaded.derived[most] = "the optimizer's rate";
}

void apply_precision(Reading& r) {
  Config& c = r.config;
  const bool fp16 = r.is_on("fp16.enabled"), bf16 = r.is_on("bf16.enabled");
  if (fp16 && bf16)
    r.error("bf16.enabled", "fp16 is enabled too; leave one of the two out, as DeepSpeed demands");
  c.precision = bf16 ? Dtype::bf16 : fp16 ? Dtype::f16 : Dtype::f32;
  const char* automatic = r.is_auto("bf16.enabled") ? "bf16.enabled" : "fp16.enabled";
  if (r.is_auto(automatic) && c.precision == Dtype::f32 && !r.source.precision)
    r.note(automatic, "is \"auto\": fp32 is taken; --precision chooses another type");
  const std::string sum = "data_types.grad_accum_dtype";
  const Dtype precision = r.as_run().precision;
  if (precision != Dtype::f16) c.loss_scale = {};
  if (c.loss_scale.min_scale < 1)  // files that scale nothing have 0
    r.error("fp16.min_loss_scale", "must be at least 1 where losses are scaled");
  if (c.grad_accum_dtype.value_or(Dtype::f32) != Dtype::f32 && c.grad_accum_dtype != precision)
    r.error(sum, str(r.value(sum)->text, " is neither fp32 nor the type of this run's gradients"));
}

void apply_ours(Reading& r) {
  const Config& c = r.config;
  if (r.config.defaults == "deepspeed")
    r.note("zerolab.defaults",
           "takes DeepSpeed's sizes, overlap and clipping ('config explain' lists them); its "
           "persistence thresholds count in the prediction of \"as\": \"deepspeed-3\" only");
  if (c.reproducible && !c.ordered)
    r.error("zerolab.reproducible",
            "needs sums in rank order, and \"ordered\" is false; leave one of the two out");
  else if (!c.ordered)
    r.note("zerolab.ordered",
           "false lets NCCL or MPI choose the order of sums, so stages agree except for "
           "rounding; ranks without them still add in rank order");
  if (c.data == "") r.error("zerolab.data", "the name is empty");
}

const std::string kZero = "zero_optimization.";

// The stage by which keys are judged; empty: several will run.
std::optional<StageKind> judged_stage(const Reading& r) {
  if (r.source.several_stages) return std::nullopt;
  return r.source.stage.value_or(r.config.stage);
}

// A preset chooses the stage that it changes.
void apply_preset(Reading& r) {
  Config& c = r.config;
  const Preset* preset = find_preset(c.as);
  if (preset == nullptr) return;
  if (r.value(kZero + "stage") && c.stage != preset->parent)
    r.error(kZero + "stage", str("is ", stage_number(c.stage), ", but zerolab.as is \"", c.as,
                                 "\", which is a stage ", stage_number(preset->parent),
                                 "; leave one of the two out"));
  c.stage = preset->parent;
  if (const auto stage = judged_stage(r))
    r.note("zerolab.as",
           str(c.as, " is predicted, not run: 'zerolab compare' and 'zerolab plan' show what it ",
               "keeps and sends; ", name(*stage), " runs"));
}

// Each key of ZeRO++ and HSDP makes stage 3 the variant of that name. A flag for the stage wins,
// and where several stages run, the keys choose none.
void apply_variants(Reading& r) {
  Config& c = r.config;
  const ConfigSource& s = r.source;
  if (c.ranks_per_node == 1) c.ranks_per_node = 0;  // DeepSpeed's 1: off
  const bool flag = s.stage && !s.several_stages, stage_3 = c.stage == StageKind::zero3;
  // --stage of a variant with groups takes its size here.
  const VariantGroups taken = flag ? file_of(*s.stage).groups : VariantGroups::none;
  const bool hpz = c.ranks_per_node > 0 && taken == VariantGroups::none,
             hsdp = c.replicas > 1 && taken != VariantGroups::replicas;
  const int keys = c.zero_quantized_weights + c.zero_quantized_gradients + hpz + hsdp;
  const std::string instead = s.several_stages ? "several stages run here"
                              : flag           ? str("--stage ", name(*s.stage), " overrides it")
                              : !c.as.empty()  ? "zerolab.as is " + c.as
                              : !stage_3       ? str("this is stage ", stage_number(c.stage))
                                               : "";
  const auto select = [&](const std::string& key, StageKind kind, int64_t group = 1) {
    if (stage_3 && keys > 1 && (instead.empty() || s.several_stages))
      return r.error(key, str("zerolab has a stage for each key that makes stage 3 a variant, and "
                              "none for several together; keep one, or give --stage ",
                              name(kind)));
    if (flag && *s.stage == kind) return;
    if (!instead.empty())
      return r.note(key,
                    str("has no effect: ", instead, "; it selects ", name(kind), " in stage 3"));
    c.stage = kind;
    if (s.ranks > 1 && s.ranks % group != 0)
      r.error(key, str(group, " does not divide ", s.ranks, " ranks"));
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
    return r.error(key, "leave it out: offload_optimizer replaces it, and is given too");
  const OffloadDevice device = r.is_on(key) ? OffloadDevice::cpu : OffloadDevice::none;
  r.warn(key,
         str("is deprecated: write \"offload_optimizer\": {\"device\": \"", name(device), "\"}"));
  r.config.offload_optimizer = device;
  r.loaded.origins[kZero + "offload_optimizer.device"] = r.where(*r.value(key)) + ": " + key;
}

void apply_offload(Reading& r) {
  Config& c = r.config;
  const std::string optimizer = kZero + "offload_optimizer", param = kZero + "offload_param";
  const StageKind stage = judged_stage(r).value_or(StageKind::ddp);
  const auto check_folder = [&](const std::string& block, OffloadDevice device, std::string& path) {
    if (device != OffloadDevice::nvme)
      path.clear();
    else if (path.empty())
      r.error(block + ".device", "nvme needs nvme_path: the folder in which the file is made");
  };
  check_folder(optimizer, c.offload_optimizer, c.nvme_path);
  check_folder(param, c.offload_param, c.param_nvme_path);
  if (c.nvme_path.empty())
    c.nvme_path = c.param_nvme_path;
  else if (!c.param_nvme_path.empty() && c.param_nvme_path != c.nvme_path)
    r.error(param + ".nvme_path", str("is ", c.param_nvme_path, ", but offload_optimizer's is ",
                                      c.nvme_path, ": a rank makes one file; write the same"));
  c.swap.sub_group_size = std::max<int64_t>(c.swap.sub_group_size, 1);  // DeepSpeed takes 0
  if (c.offload_optimizer != OffloadDevice::none && !shards_optimizer(stage))
    r.note(optimizer,
           "has an effect in stages 1 to 3: ddp keeps its optimizer state on the device");
  if (c.offload_param == OffloadDevice::none) return;
  if (stage == StageKind("zero3_qwz"))
    r.error(param, "leave it out: zero3_qwz quantizes its parameter shard on the device");
  else if (!shards_parameter(stage))
    r.note(param,
           "has an effect in stage 3 only, as in DeepSpeed: the other stages compute with full "
           "parameters, which stay on the device");
}

// Each key asks for activation checkpointing, so that it selects what zerolab calls "full".
void apply_activations(Reading& r) {
  Config& c = r.config;
  const std::string recompute = "zerolab.recompute";
  if (const auto misfit = activations_misfit(c, 1); !misfit.empty())
    r.error("zerolab.replicated_micro_batches", misfit);
  if (!c.cpu_checkpointing && c.checkpoints == 0 &&
      !(c.partition_activations && c.replicated_micro_batches))
    return;
  if (r.value(recompute) && c.recompute != Recompute::full)
    r.error(recompute, str("is \"", name(c.recompute), "\", and activation_checkpointing needs ",
                           "\"full\"; write that, or leave one of the two out"));
  c.recompute = Recompute::full;
  r.loaded.derived[recompute] = "activation_checkpointing asks for it";
}

}  // namespace

void apply_rules(Reading& r) {
  Config& c = r.config;
  apply_batch(r);
  apply_ours(r);
  apply_optimizer(r);
  apply_scheduler(r);
  apply_precision(r);
  apply_preset(r);
  apply_variants(r);
  apply_cpu_offload(r);
  apply_offload(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (c.defaults == "deepspeed" && !r.value(kZero + "overlap_comm"))
    c.overlap.overlap_comm = shards_parameter(r.as_run().stage);
  apply_activations(r);
}

}  // namespace zl
