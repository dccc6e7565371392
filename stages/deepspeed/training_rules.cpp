// The optimizer, the scheduler, the types, the reports and zerolab's own settings, where keys
// depend on each other, as in DeepSpeed 0.19.8 (runtime/engine.py, runtime/lr_schedules.py,
// runtime/precision_config.py).

#include <cmath>

#include "stages/deepspeed/reading.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

void apply_optimizer(Reading& r) {
  OptimizerConfig& o = r.config.optimizer;
  const std::string params = "optimizer.params.";
  const JsonValue* type = r.value("optimizer.type");
  if (r.value("optimizer") && r.value("optimizer")->set < 0 && !r.has("optimizer.type"))
    r.note("optimizer.type", "is absent: zerolab takes AdamW, DeepSpeed would ignore this block");
  if (o.kind == OptimizerKind::sgd) {
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
      r.error(params + "nesterov",
              str("Nesterov momentum requires a momentum and zero dampening; momentum is ",
                  o.momentum, " and dampening ", o.dampening));
    return;
  }
  if (!o.decoupled && (!type || lower_case(type->text) == "adamw")) {  // "Adam" means AdamW too
    o.decoupled = true;
    r.warn(params + "adam_w_mode",
           "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
  }
  // torch.optim.AdamW has another default than torch.optim.Adam and DeepSpeed's own classes.
  const std::string torch = params + "torch_adam", decay = params + "weight_decay";
  if (!r.is_on(torch) || !o.decoupled || r.value(decay) || r.is_auto(decay)) return;
  o.weight_decay = 0.01;
  r.loaded.origins[decay] = r.where(torch) + ": " + torch;
}

void apply_total_steps(Reading& r) {
  const std::string key = "scheduler.params.total_num_steps";
  ScheduleConfig& s = r.config.schedule;
  const int64_t warmup = r.is_wrong("scheduler.params.warmup_num_steps") ? 0 : s.warmup_num_steps;
  if (r.value(key)) {
    if (s.total_num_steps < warmup)
      r.warn(key,
             str("total_num_steps ", s.total_num_steps, " is less than warmup_num_steps ", warmup));
    return;
  }
  s.total_num_steps = r.config.steps;
  r.loaded.derived[key] = "the run's steps";
  if (!r.has(key))
    r.error(key, "is required by this schedule: the step at which the rate reaches its end");
  else if (r.is_auto(key))
    r.note(key, str("is \"auto\": ", r.config.steps, ", the steps of this run",
                    r.config.steps < warmup ? str("; all of them are warm-up, which has ", warmup)
                                            : ""));
}

void apply_scheduler(Reading& r) {
  ScheduleConfig& s = r.config.schedule;
  const std::string type = "scheduler.type", most = "scheduler.params.warmup_max_lr",
                    warmup = "scheduler.params.warmup_type";
  if (r.value("scheduler") && !r.value(type) && !r.is_wrong(type))
    r.warn(type, "is absent: there is no schedule, as in DeepSpeed");
  if (s.kind == ScheduleKind::constant) return;
  if (const JsonValue* v = r.value(warmup); v && v->text != "linear" && v->text != "log")
    r.warn(warmup, in_quotes(v->text) +
                       " is neither \"log\" nor \"linear\": log is taken, as in DeepSpeed");
  if (s.kind != ScheduleKind::warmup) apply_total_steps(r);
  if (r.value(most) || (s.kind != ScheduleKind::warmup && !r.is_auto(most))) return;
  s.warmup_max_lr = r.config.optimizer.lr;  // WarmupDecayLR's default is 0.001
  r.loaded.derived[most] = "the optimizer's rate";
}

void apply_loss_scale(Reading& r) {
  const bool fp16 = r.as_run().precision == Dtype::f16;
  LossScaleConfig& scale = r.config.loss_scale;
  const double fixed = scale.static_scale;
  // The scale and its reciprocal must be normal fp32 numbers.
  if (fixed != 0 && std::abs(std::log2(fixed)) > 126)
    r.add(fp16 ? Severity::error : Severity::note, "fp16.loss_scale",
          fp16 ? str("expected 0 or a number from 2^-126 to 2^126, not ", fixed)
               : "has no effect: fp16 is not enabled");
  if (fp16 && fixed == 0 && scale.hysteresis < 1)
    r.warn("fp16.hysteresis", str(scale.hysteresis,
                                  ": the loss scale is never halved, as in DeepSpeed; write 1 to "
                                  "halve it at each overflow"));
  else if (scale.hysteresis < 1)
    r.note("fp16.hysteresis", "has no effect: it is for fp16 with a dynamic loss scale");
  if (!fp16) scale = {};
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
  apply_loss_scale(r);
  const std::string sum = "data_types.grad_accum_dtype", sent = "communication_data_type";
  const Dtype precision = r.as_run().precision;
  if (c.grad_accum_dtype.value_or(Dtype::f32) != Dtype::f32 && c.grad_accum_dtype != precision)
    r.error(sum, str(r.value(sum)->text, " is neither fp32 nor the type of this run's gradients"));
  for (const auto& [key, type] :
       {std::pair{sent, c.communication_data_type}, std::pair{sum, c.grad_accum_dtype}})
    if (c.reproducible && type.value_or(Dtype::f32) != Dtype::f32)
      r.error(key, str(type == Dtype::f16 ? "fp16 keeps 11" : "bf16 keeps 8",
                       " significant bits of a sum, and zerolab.reproducible adds in fp32, with "
                       "24; leave it out or write \"fp32\""));
  r.loaded.derived[sent] = "the type in which gradients accumulate";
  r.loaded.derived[sum] =
      c.reproducible ? "zerolab.reproducible adds in fp32" : "the type of gradients";
}

void apply_ours(Reading& r) {
  const Config& c = r.config;
  if (r.loaded.deepspeed_defaults)
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
  if (c.comms_logger.enabled && c.comms_logger.prof_all && !c.comms_logger.prof_ops.empty())
    r.note("comms_logger.prof_ops",
           "has no effect while prof_all is true; write \"prof_all\": false");
}

}  // namespace

void apply_training_rules(Reading& r) {
  apply_ours(r);
  apply_optimizer(r);
  apply_scheduler(r);
  apply_precision(r);
}

void apply_activation_rules(Reading& r) {
  Config& c = r.config;
  const std::string block = "activation_checkpointing.", parts = block + "partition_activations";
  if (const auto misfit = activations_misfit(c, 1); !misfit.empty())
    r.error("zerolab.replicated_micro_batches", misfit);
  if (c.partition_activations && !c.replicated_micro_batches && r.source.ranks > 1) {
    const std::string reason = str("the ", r.source.ranks, " ranks read different micro-batches, ",
                                   "so none holds a copy to leave out");
    r.note(parts, str("has no effect: ", reason,
                      "; \"zerolab\": {\"replicated_micro_batches\": true} gives all the same"));
    c.partition_activations = false;
    r.loaded.origins.erase(parts);
    r.loaded.derived[parts] = reason;
  }
  const std::string asks = c.partition_activations ? parts
                           : c.cpu_checkpointing   ? block + "cpu_checkpointing"
                           : c.checkpoints > 0     ? block + "number_checkpoints"
                                                   : "";
  if (asks.empty()) return;
  if (r.value("zerolab.recompute") && c.recompute != Recompute::full)
    r.error(asks, str("needs activation checkpointing, but zerolab.recompute is \"",
                      name(c.recompute), "\"; write \"full\" there, or leave one of the two out"));
  else if (!r.value("zerolab.recompute"))
    r.loaded.origins["zerolab.recompute"] = r.where(asks) + ": " + asks;
  c.recompute = Recompute::full;
}

}  // namespace zl
