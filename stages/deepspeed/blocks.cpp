// The blocks about arithmetic and ZeRO, as DeepSpeed 0.19.8 takes them (runtime/engine.py,
// runtime/lr_schedules.py, runtime/precision_config.py, runtime/zero/config.py).

#include <algorithm>
#include <cmath>
#include <utility>

#include "stages/deepspeed/reader.h"
#include "stages/stage_file.h"
#include "tensor/error.h"

namespace zl {
namespace {

// As Python takes a value in `if`.
bool is_true(const JsonValue* value) {
  return value && (value->boolean || value->number != 0 || !value->items.empty() ||
                   !value->members.empty() ||
                   (value->kind == JsonValue::Kind::string && !value->text.empty()));
}

void read_adam(ConfigBlock& params, bool adamw, OptimizerConfig& config) {
  std::vector<double> betas{config.beta1, config.beta2};
  params.read("betas", betas);
  config.beta1 = betas[0];
  config.beta2 = betas[1];
  params.read("eps", config.eps);
  params.read("bias_correction", config.bias_correction);
  const auto mode = params.get<bool>("adam_w_mode");
  config.decoupled = adamw || mode.value_or(true);  // "Adam" means AdamW, as in DeepSpeed
  // torch.optim.AdamW has another default than torch.optim.Adam and DeepSpeed's own classes.
  const JsonValue* decay = params.peek("weight_decay");
  const bool torch = is_true(params.take("torch_adam"));
  if (torch && config.decoupled && (!decay || decay->is_null())) config.weight_decay = 0.01;
  if (adamw && mode == false)
    params.warn("adam_w_mode",
                "false has no effect with the type AdamW, as in DeepSpeed: use \"Adam\"");
}

void read_sgd(ConfigBlock& params, OptimizerConfig& config) {
  params.read("momentum", config.momentum);
  params.read("dampening", config.dampening);
  params.read("nesterov", config.nesterov);
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0))
    params.error("nesterov",
                 str("Nesterov momentum requires a momentum and zero dampening; momentum is ",
                     config.momentum, " and dampening ", config.dampening));
}

void read_warmup(ConfigBlock& params, ScheduleConfig& config) {
  params.read("warmup_num_steps", config.warmup_num_steps);
  const std::string type = params.get<std::string>("warmup_type").value_or("log");
  config.warmup_type = type == "linear" ? WarmupType::linear : WarmupType::log;
  if (type != "linear" && type != "log")
    params.warn("warmup_type", in_quotes(type) +
                                   " is neither \"log\" nor \"linear\": log is "
                                   "taken, as in DeepSpeed");
}

void read_total_steps(ConfigBlock& params, int64_t run_steps, ScheduleConfig& config) {
  config.total_num_steps = run_steps;
  const JsonValue* written = params.peek("total_num_steps");
  if (params.read("total_num_steps", config.total_num_steps)) {
    if (config.total_num_steps < config.warmup_num_steps)
      params.warn("total_num_steps",
                  str("total_num_steps ", config.total_num_steps, " is less than warmup_num_steps ",
                      config.warmup_num_steps));
  } else if (written == nullptr) {
    params.error("total_num_steps",
                 "is required by this schedule: the step at which the rate reaches its end");
  } else if (written->is_auto()) {
    params.note("total_num_steps", str("is \"auto\": ", run_steps, ", the steps of this run"));
  }
}

}  // namespace

void read_optimizer(ConfigBlock optimizer, OptimizerConfig& config) {
  const std::string written = optimizer.get<std::string>("type").value_or("AdamW");
  const std::string type = lower_case(written);
  ConfigBlock params = optimizer.block("params");
  if (optimizer.from_file() && optimizer.peek("type") == nullptr)
    optimizer.note("type", "is absent: zerolab takes AdamW, DeepSpeed would ignore this block");
  params.read("lr", config.lr);
  params.read("weight_decay", config.weight_decay);
  if (type == "sgd") {
    config.kind = OptimizerKind::sgd;
    read_sgd(params, config);
  } else if (type == "adam" || type == "adamw") {
    read_adam(params, type == "adamw", config);
  } else {
    return optimizer.error("type", "expected Adam, AdamW or SGD, not " + in_quotes(written));
  }
  optimizer.finish();
  params.finish(type == "sgd" ? "SGD" : "AdamW");
}

void read_scheduler(ConfigBlock scheduler, const Config& run, ScheduleConfig& config) {
  if (!scheduler.present()) return;
  constexpr char kTypes[] = "expected WarmupLR, WarmupDecayLR or WarmupCosineLR";
  const auto type = scheduler.get<std::string>("type");
  ConfigBlock params = scheduler.block("params");
  if (!type) {
    if (!scheduler.given("type"))
      scheduler.warn("type", str("is absent: there is no schedule, as in DeepSpeed; ", kTypes));
    return;
  }
  const bool cosine = *type == "WarmupCosineLR", decay = *type == "WarmupDecayLR";
  if (!cosine && !decay && *type != "WarmupLR")
    return scheduler.error("type", str(kTypes, ", not ", in_quotes(*type)));
  config.kind = cosine  ? ScheduleKind::warmup_cosine
                : decay ? ScheduleKind::warmup_decay
                        : ScheduleKind::warmup;
  read_warmup(params, config);
  if (cosine) {
    params.read("warmup_min_ratio", config.warmup_min_ratio);
    params.read("cos_min_ratio", config.cos_min_ratio);
  } else {
    const JsonValue* most = params.peek("warmup_max_lr");
    if (!decay || (most && most->is_auto()))  // WarmupDecayLR's default is 0.001
      config.warmup_max_lr = run.optimizer.lr;
    params.read("warmup_min_lr", config.warmup_min_lr);
    params.read("warmup_max_lr", config.warmup_max_lr);
  }
  if (cosine || decay) read_total_steps(params, run.steps, config);
  scheduler.finish();
  params.finish(*type);
}

namespace {

// DeepSpeed's names of a type.
Dtype deepspeed_dtype(std::string name) {
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "fp16" || name == "float16" || name == "half") return Dtype::f16;
  return name == "bf16" || name == "bfloat16" ? Dtype::bf16 : Dtype::f32;
}

// A number out of range is an error where it is used and a note elsewhere, as in DeepSpeed.
void read_fp16(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config) {
  ConfigBlock fp16 = top.block("fp16");
  LossScaleConfig& scale = config.loss_scale;
  const bool on = fp16.get<bool>("enabled").value_or(false);
  if (on) config.precision = Dtype::f16;
  const bool used = of_flag ? *of_flag == Dtype::f16 : on;
  const double fixed = fp16.get<double>("loss_scale").value_or(0);
  const bool dynamic = used && fixed == 0;
  const char* unused =
      used ? "has no effect: the loss scale is fixed" : "has no effect: fp16 is not enabled";
  const auto check = [&](const char* key, bool fits, bool applies, const std::string& expected) {
    if (!fits) applies ? fp16.error(key, expected) : fp16.note(key, unused);
    return fits;
  };
  // The scale and its reciprocal must be normal fp32 numbers.
  constexpr int most_power = 126;
  const bool normal = std::abs(std::log2(fixed)) <= most_power;
  if (check("loss_scale", fixed == 0 || normal, used,
            str("expected 0 or a number from 2^-126 to 2^126, not ", fixed)))
    scale.static_scale = fixed;
  const int64_t power = fp16.get<int64_t>("initial_scale_power").value_or(16);
  if (check("initial_scale_power", power >= -most_power && power <= most_power, dynamic,
            str("expected a whole number from -126 to 126, not ", power)))
    scale.initial_scale_power = int(power);
  const auto read_count = [&](const char* key, int64_t& target) {
    const int64_t count = fp16.get<int64_t>(key).value_or(target);
    if (check(key, count >= 1, dynamic, str("expected a whole number of at least 1, not ", count)))
      target = count;
  };
  read_count("loss_scale_window", scale.window);
  int64_t least = int64_t(scale.min_scale);
  read_count("min_loss_scale", least);
  scale.min_scale = double(least);
  const int64_t hysteresis = fp16.get<int64_t>("hysteresis").value_or(scale.hysteresis);
  if (dynamic || check("hysteresis", hysteresis >= 1, false, "")) scale.hysteresis = hysteresis;
  if (dynamic && hysteresis < 1)
    fp16.warn("hysteresis", str(hysteresis,
                                ": the loss scale is never halved, as in DeepSpeed; "
                                "write 1 to halve it at each overflow"));
  fp16.read("consecutive_hysteresis", scale.consecutive_hysteresis);
  fp16.finish();
}

void read_bf16(ConfigBlock& top, Config& config) {
  const char *name = "bf16", *other = "bfloat16";
  if (!top.given("bf16")) std::swap(name, other);
  if (top.take(other) != nullptr)
    top.warn(other, "has no effect beside \"bf16\", its newer name; leave it out");
  ConfigBlock bf16 = top.block(name);
  const bool on = bf16.get<bool>("enabled").value_or(false);
  bf16.read("check_grad_overflow", config.check_grad_overflow);
  if (on && config.precision == Dtype::f16)
    bf16.error("enabled", "fp16 is enabled too; leave one of the two out, as DeepSpeed demands");
  if (on) config.precision = Dtype::bf16;
  bf16.finish();
}

}  // namespace

void read_precision(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config) {
  read_fp16(top, of_flag, config);
  read_bf16(top, config);
  const Dtype precision = of_flag.value_or(config.precision);
  if (const auto type = top.get<std::string>("communication_data_type"))
    config.communication_data_type = deepspeed_dtype(lower_case(*type));
  ConfigBlock types = top.block("data_types");
  if (const auto type = types.get<std::string>("grad_accum_dtype")) {
    config.grad_accum_dtype = deepspeed_dtype(*type);
    if (config.grad_accum_dtype != Dtype::f32 && config.grad_accum_dtype != precision)
      types.error("grad_accum_dtype",
                  str(*type, " is neither fp32 nor the type of this run's gradients"));
  }
  const auto require_fp32 = [&](ConfigBlock& block, const char* key, std::optional<Dtype> type) {
    if (!config.reproducible || type.value_or(Dtype::f32) == Dtype::f32) return;
    block.error(key, str(type == Dtype::f16 ? "fp16 keeps 11" : "bf16 keeps 8",
                         " significant bits of a sum, and zerolab.reproducible adds in fp32, with "
                         "24; leave it out or write \"fp32\""));
  };
  require_fp32(top, "communication_data_type", config.communication_data_type);
  require_fp32(types, "grad_accum_dtype", config.grad_accum_dtype);
  types.finish();
  if (precision != Dtype::f16) config.loss_scale = {};
}

namespace {

// A key that `instead` has replaced. Returns whether it is on.
bool read_deprecated(ConfigBlock& zero, const char* key, const char* instead) {
  const auto on = zero.get<bool>(key);
  if (on && zero.peek(instead) != nullptr)
    zero.error(key, str("leave it out: ", instead, " replaces it, and is given too"));
  else if (on)
    zero.warn(key, str("is deprecated: write \"", instead, "\": {\"device\": \"",
                       *on ? "cpu" : "none", "\"}"));
  return on == true;
}

// The stage by which keys are judged; empty: several will run.
using JudgedStage = std::optional<StageKind>;

// A key that DeepSpeed takes with and without "stage3_". Only stage 3 uses it.
// Returns whether the key is given.
bool read_of_stage3(ConfigBlock& zero, const std::string& key, JudgedStage stage, int64_t& target) {
  const std::string longer = "stage3_" + key;
  const int64_t before = target;
  const bool first = zero.read(longer.c_str(), target);
  if (!zero.read(key.c_str(), target) && !first) return false;
  if (first && zero.given(key.c_str()))
    zero.error(key.c_str(), str("is the same key as ", longer, ", which is ",
                                *zero.get<int64_t>(longer.c_str()), "; leave one of the two out"));
  if (target != before && !shards_parameter(stage.value_or(StageKind::zero3)))
    zero.note(first ? longer.c_str() : key.c_str(),
              str("has no effect in stage ", stage_number(*stage),
                  ": parameters are sharded in stage 3 only"));
  return true;
}

// Absent and null mean the default: false, or DeepSpeed's true in stage 3 and false elsewhere.
void read_overlap(ConfigBlock& zero, JudgedStage stage, Config& config) {
  Overlap& overlap = config.overlap;
  if (!shards_parameter(stage.value_or(StageKind::zero3))) overlap.overlap_comm = false;
  zero.read("overlap_comm", overlap.overlap_comm);
  read_of_stage3(zero, "prefetch_bucket_size", stage, overlap.prefetch_bucket_size);
  read_of_stage3(zero, "max_live_parameters", stage, overlap.max_live_parameters);
  read_of_stage3(zero, "max_reuse_distance", stage, overlap.max_reuse_distance);
  int64_t threshold = 0;
  if ((config.as == "deepspeed-3" || !stage) &&
      read_of_stage3(zero, "param_persistence_threshold", stage, threshold))
    config.persistence_threshold = threshold;
}

// DeepSpeed refuses these scalings together with a reduce-scatter of gradients.
void read_scaling(ConfigBlock& top, bool reduce_scatter, JudgedStage stage) {
  const bool refused = reduce_scatter && stage && shards_gradient(*stage);
  const auto judge = [&](const char* key) {
    if (refused)
      top.error(key, "leave it out: DeepSpeed refuses it in stages 2 and 3 with reduce_scatter");
    else
      top.note(key,
               "has no effect: gradients are added, then divided by the number of ranks; only "
               "rounding differs");
  };
  if (top.get<bool>("prescale_gradients") == true) judge("prescale_gradients");
  if (top.get<double>("gradient_predivide_factor").value_or(1) != 1)
    judge("gradient_predivide_factor");
}

// ZeRO++ and HSDP: each of these keys makes stage 3 the variant of that name. A flag for the stage
// wins, and where several stages run, the keys choose none.
void read_variants(ConfigBlock& zero, ConfigBlock& zerolab, const ConfigSource& source,
                   Config& config) {
  zero.read("zero_hpz_partition_size", config.ranks_per_node);
  if (config.ranks_per_node == 1) config.ranks_per_node = 0;  // DeepSpeed's 1: off
  const bool weights = zero.get<bool>("zero_quantized_weights") == true,
             gradients = zero.get<bool>("zero_quantized_gradients") == true,
             nodes = config.ranks_per_node > 0, replicas = config.replicas > 1;
  const VariantGroups groups =  // take their size here
      source.stage ? file_of(*source.stage).groups : VariantGroups::none;
  const StageKind stage = config.stage;
  const auto judge = [&](ConfigBlock& block, const char* key, StageKind kind, int64_t count) {
    if (source.stage && !source.several_stages) {
      if (*source.stage != kind)
        block.note(key, str("has no effect: --stage ", name(*source.stage),
                            " overrides it; it would select ", name(kind)));
    } else if (!config.as.empty() && !source.several_stages) {
      block.note(key, str("has no effect in zerolab.as ", config.as));
    } else if (stage == StageKind::zero3 && weights + gradients + nodes + replicas > 1) {
      block.error(key,
                  str("zerolab has one stage for each of zero_quantized_weights, "
                      "zero_quantized_gradients, zero_hpz_partition_size above 1 and replicas, "
                      "and none for several together; keep one, or give --stage ",
                      name(kind)));
    } else if (source.several_stages) {
      block.note(key, str("several stages run here: list ", name(kind), " among them"));
    } else if (stage != StageKind::zero3) {
      block.note(key, str("has no effect in stage ", stage_number(stage), ": it is for stage 3"));
    } else {
      config.stage = kind;
      if (source.ranks > 1 && source.ranks % count != 0)
        block.error(key, str(count, " does not divide ", source.ranks, " ranks"));
    }
  };
  if (weights) judge(zero, "zero_quantized_weights", StageKind("zero3_qwz"), 1);
  if (gradients) judge(zero, "zero_quantized_gradients", StageKind("zero3_qgz"), 1);
  if (nodes && (groups == VariantGroups::none || source.several_stages))
    judge(zero, "zero_hpz_partition_size", StageKind("zero3_hpz"),
          source.ranks_per_node > 0 ? source.ranks_per_node : config.ranks_per_node);
  if (replicas && (groups != VariantGroups::replicas || source.several_stages))
    judge(zerolab, "replicas", StageKind("hsdp"),
          source.replicas > 0 ? source.replicas : config.replicas);
}

}  // namespace

void read_zero(ConfigBlock& top, ConfigBlock& zerolab, const ConfigSource& source, Config& config) {
  ConfigBlock zero = top.block("zero_optimization");
  const auto number = zero.get<int64_t>("stage");
  if (number && !config.as.empty() && config.stage != kStages[*number])
    zero.error("stage",
               str("is ", *number, ", but zerolab.as is \"", config.as, "\", which is a stage ",
                   stage_number(config.stage), "; leave one of the two out"));
  else if (number)
    config.stage = kStages[*number];
  read_variants(zero, zerolab, source, config);
  zero.read("reduce_bucket_size", config.reduce_bucket_size);
  zero.read("allgather_bucket_size", config.allgather_bucket_size);
  JudgedStage stage = source.stage ? source.stage : config.stage;
  if (source.several_stages) stage = std::nullopt;
  const bool old_offload = read_deprecated(zero, "cpu_offload", "offload_optimizer");
  read_offload_optimizer(zero, stage, old_offload, config);
  if (!config.as.empty() && stage)
    zerolab.note("as",
                 str(config.as, " is predicted, not run: 'zerolab compare' and 'zerolab plan' ",
                     "show what it keeps and sends; ", name(*stage), " runs"));
  read_overlap(zero, stage, config);
  const bool old = read_deprecated(zero, "cpu_offload_param", "offload_param");
  read_offload_param(zero, stage, old, config);
  const auto is_false = [&](const char* key) {
    const JsonValue* value = zero.peek(key);
    return value != nullptr && value->kind == JsonValue::Kind::boolean && !value->boolean;
  };
  if (is_false("compute_grad_norm") && stage &&
      (parent(*stage) == StageKind::ddp || shards_parameter(*stage)))
    zero.error("compute_grad_norm", "write true: DeepSpeed takes false in stages 1 and 2 only");
  read_scaling(top, !is_false("reduce_scatter"), stage);
  zero.finish();
}

}  // namespace zl
