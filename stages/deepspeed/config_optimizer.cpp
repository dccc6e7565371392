// The blocks "optimizer" and "scheduler", as DeepSpeed 0.19 takes them (runtime/engine.py,
// _configure_basic_optimizer; runtime/lr_schedules.py).

#include <tuple>

#include "stages/deepspeed/config_reader.h"
#include "stages/deepspeed/config_type.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

void read_adam(ConfigBlock& params, bool adamw, OptimizerConfig& config) {
  if (const auto betas = params.pair("betas")) std::tie(config.beta1, config.beta2) = *betas;
  assign(config.eps, params.number("eps"));
  assign(config.bias_correction, params.boolean("bias_correction"));
  const auto mode = params.boolean("adam_w_mode");
  config.decoupled =
      adamw || mode.value_or(true);  // "Adam" means AdamW unless the mode says otherwise
  if (adamw && mode == false) {
    params.add(Severity::warning, "adam_w_mode",
               "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
  }
}

void read_sgd(ConfigBlock& params, OptimizerConfig& config) {
  assign(config.momentum, params.number("momentum"));
  assign(config.dampening, params.number("dampening"));
  assign(config.nesterov, params.boolean("nesterov"));
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    params.add(Severity::error, "nesterov",
               str("Nesterov momentum requires a momentum and zero dampening; momentum is ",
                   config.momentum, " and dampening ", config.dampening));
  }
}

void read_warmup(ConfigBlock& params, ScheduleConfig& config) {
  assign(config.warmup_num_steps, params.whole("warmup_num_steps"));
  const auto type = params.text("warmup_type");
  if (!type) return;
  config.warmup_type = *type == "linear" ? WarmupType::linear : WarmupType::log;
  if (*type != "linear" && *type != "log") {
    params.add(Severity::warning, "warmup_type",
               str(in_quotes(*type),
                   " is neither \"log\" nor \"linear\": log is taken (DeepSpeed: "
                   "Using unknown warmup_type: ",
                   *type, ". The increasing function is set to default (log))"));
  }
}

void read_total_steps(ConfigBlock& params, int64_t run_steps, ScheduleConfig& config) {
  const auto total = params.whole("total_num_steps");
  config.total_num_steps = total.value_or(run_steps);
  const JsonValue* written = params.peek("total_num_steps");
  if (written == nullptr) {
    params.add(Severity::error, "total_num_steps",
               "is required by this schedule: at which step the rate reaches its end");
  } else if (!params.given("total_num_steps")) {
    params.add(Severity::note, "total_num_steps",
               str("is ", describe(*written), ": ", run_steps, ", as zerolab.steps"));
  }
  if (total && *total < config.warmup_num_steps) {
    params.add(Severity::warning, "total_num_steps",
               str("total_num_steps ", *total, " is less than warmup_num_steps ",
                   config.warmup_num_steps));
  }
}

}  // namespace

void read_optimizer(ConfigBlock optimizer, OptimizerConfig& config) {
  const std::string written = optimizer.text("type").value_or("AdamW"), type = lower_case(written);
  ConfigBlock params = optimizer.block("params");
  if (optimizer.from_file() && optimizer.peek("type") == nullptr) {
    optimizer.add(Severity::note, "type",
                  "is absent: zerolab takes AdamW, DeepSpeed would ignore this block");
  }
  assign(config.lr, params.number("lr"));
  assign(config.weight_decay, params.number("weight_decay"));
  if (type == "sgd") {
    config.kind = OptimizerKind::sgd;
    read_sgd(params, config);
  } else if (type == "adam" || type == "adamw") {
    read_adam(params, type == "adamw", config);
  } else {
    optimizer.add(Severity::error, "type",
                  "expected Adam, AdamW or SGD, not " + in_quotes(written));
    return;
  }
  optimizer.finish();
  params.finish(type == "sgd" ? "SGD" : "AdamW");
}

void read_scheduler(ConfigBlock scheduler, const Config& run, ScheduleConfig& config) {
  if (!scheduler.present()) return;
  const auto type = scheduler.text("type");
  ConfigBlock params = scheduler.block("params");
  if (!type) {
    if (!scheduler.given("type")) {
      scheduler.add(Severity::warning, "type",
                    "is absent: there is no schedule, as in DeepSpeed; expected WarmupLR, "
                    "WarmupDecayLR or WarmupCosineLR");
    }
    return;
  }
  const bool cosine = *type == "WarmupCosineLR", decay = *type == "WarmupDecayLR";
  if (!cosine && !decay && *type != "WarmupLR") {
    return scheduler.add(
        Severity::error, "type",
        "expected WarmupLR, WarmupDecayLR or WarmupCosineLR, not " + in_quotes(*type));
  }
  config.kind = cosine  ? ScheduleKind::warmup_cosine
                : decay ? ScheduleKind::warmup_decay
                        : ScheduleKind::warmup;
  read_warmup(params, config);
  if (cosine) {
    assign(config.warmup_min_ratio, params.number("warmup_min_ratio"));
    assign(config.cos_min_ratio, params.number("cos_min_ratio"));
  } else {
    if (!decay)
      config.warmup_max_lr =
          run.optimizer.lr;  // WarmupDecayLR's default is 0.001, whatever the optimizer says
    assign(config.warmup_min_lr, params.number("warmup_min_lr"));
    assign(config.warmup_max_lr, params.number("warmup_max_lr"));
  }
  if (cosine || decay) read_total_steps(params, run.steps, config);
  scheduler.finish();
  params.finish(*type);
}

}  // namespace zl
