// The types of numbers: fp16, bf16, communication_data_type and data_types, as DeepSpeed 0.19.8
// takes them (runtime/precision_config.py, runtime/config.py); and the small blocks about what is
// printed and written.

#include <cmath>
#include <limits>

#include "stages/deepspeed/config_reader.h"
#include "stages/deepspeed/config_type.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

// DeepSpeed's names of a type, without "torch.".
Dtype dtype_of(std::string name) {
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "fp16" || name == "float16" || name == "half") return Dtype::f16;
  return name == "bf16" || name == "bfloat16" ? Dtype::bf16 : Dtype::f32;
}

const char* deepspeed_name(Dtype dtype) {
  return dtype == Dtype::f16 ? "fp16" : dtype == Dtype::bf16 ? "bf16" : "fp32";
}

// A count of the dynamic loss scale. DeepSpeed judges its range only where the scale is dynamic,
// and so do we.
void read_count(ConfigBlock& fp16, const char* key, bool dynamic, int64_t& count) {
  const JsonValue* value = fp16.peek(key);
  const bool judged = dynamic || value == nullptr || value->kind == JsonValue::Kind::boolean;
  const int64_t number = judged ? 1 : to_whole(*value, true).value_or(1);
  if (number >= 1) return assign(count, fp16.whole(key));
  fp16.take(key);
  fp16.add(Severity::note, key, str(number, " has no effect: there is no dynamic loss scale"));
}

constexpr int kMostPower =
    126;  // 2^126 and its reciprocal are normal numbers of fp32, as are all between them

// DeepSpeed takes any scale, and so do we where none is used.
void read_scale(ConfigBlock& fp16, bool used, LossScaleConfig& scale) {
  const double given = fp16.number("loss_scale").value_or(0);
  const int64_t power = fp16.whole("initial_scale_power").value_or(scale.initial_scale_power);
  const bool dynamic = given == 0;
  const bool scale_fits =
      dynamic || (given >= std::ldexp(1.0, -kMostPower) && given <= std::ldexp(1.0, kMostPower));
  const bool power_fits = power >= -kMostPower && power <= kMostPower;
  if (scale_fits) scale.static_scale = given;
  if (power_fits) scale.initial_scale_power = int(power);
  const auto judge = [&](bool fits, bool needed, const char* key, const std::string& wrong) {
    if (fits) return;
    if (needed) return fp16.add(Severity::error, key, wrong);
    fp16.add(Severity::note, key,
             str("has no effect: ", used ? "the loss scale is fixed" : "fp16 is not enabled"));
  };
  judge(scale_fits, used, "loss_scale",
        str("expected 0 or a number from 2^-126 to 2^126, not ", given,
            ": it and its reciprocal must be normal fp32 numbers"));
  judge(power_fits, used && dynamic, "initial_scale_power",
        str("expected a whole number from -126 to 126, not ", power,
            ": 2 to this power and its reciprocal must be normal fp32 numbers"));
}

// DeepSpeed counts down from it to exactly 1.
void read_hysteresis(ConfigBlock& fp16, bool dynamic, LossScaleConfig& scale) {
  const int64_t given = fp16.whole("hysteresis").value_or(scale.hysteresis);
  if (dynamic || given >= 1) scale.hysteresis = given;
  if (given >= 1) return;
  fp16.add(dynamic ? Severity::warning : Severity::note, "hysteresis",
           dynamic ? str(given,
                         ": the loss scale is never halved, as in DeepSpeed; write 1 to halve it "
                         "at each overflow")
                   : str(given, " has no effect: there is no dynamic loss scale"));
}

void read_fp16(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config) {
  ConfigBlock fp16 = top.block("fp16");
  LossScaleConfig& scale = config.loss_scale;
  const bool on = fp16.boolean("enabled").value_or(false);
  const bool used = of_flag ? *of_flag == Dtype::f16 : on;
  read_scale(fp16, used, scale);
  const bool dynamic = used && scale.static_scale == 0;
  int64_t least = int64_t(scale.min_scale);
  read_count(fp16, "loss_scale_window", dynamic, scale.window);
  read_hysteresis(fp16, dynamic, scale);
  read_count(fp16, "min_loss_scale", dynamic, least);
  scale.min_scale = double(least);
  assign(scale.consecutive_hysteresis, fp16.boolean("consecutive_hysteresis"));
  if (on) config.precision = Dtype::f16;
  fp16.finish();
}

void read_bf16(ConfigBlock& top, Config& config) {
  const bool both = top.given("bf16") && top.given("bfloat16");
  const char* name = top.given("bfloat16") && !both ? "bfloat16" : "bf16";
  if (both) {
    top.take("bfloat16");
    top.add(Severity::warning, "bfloat16",
            "has no effect beside \"bf16\", its newer name; leave it out");
  }
  ConfigBlock bf16 = top.block(name);
  if (name == std::string("bf16")) top.take("bfloat16");
  const bool on = bf16.boolean("enabled").value_or(false);
  assign(config.check_grad_overflow, bf16.boolean("check_grad_overflow"));
  if (on && config.precision == Dtype::f16)
    bf16.add(Severity::error, "enabled",
             "fp16 is enabled too (DeepSpeed: bfloat16 and fp16 modes cannot be simultaneously "
             "enabled); leave one of the two out");
  if (on) config.precision = Dtype::bf16;
  bf16.finish();
}

void read_data_types(ConfigBlock& top, Dtype precision, Config& config) {
  if (const auto type = top.text("communication_data_type"))
    config.communication_data_type = dtype_of(*type);
  ConfigBlock types = top.block("data_types");
  if (const auto type = types.text("grad_accum_dtype")) {
    const Dtype dtype = dtype_of(*type);
    config.grad_accum_dtype = dtype;
    if (dtype != Dtype::f32 && dtype != precision) {
      types.add(Severity::error, "grad_accum_dtype",
                str(*type, " is neither fp32 nor the type of this run's gradients, ",
                    deepspeed_name(precision),
                    " (DeepSpeed: unsupported mix of model_dtype and grad_accum_dtype)"));
    }
  }
  types.finish();
}

}  // namespace

void read_precision(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config) {
  read_fp16(top, of_flag, config);
  read_bf16(top, config);
  read_data_types(top, of_flag.value_or(config.precision), config);
}

namespace {

// DeepSpeed prints where the step is a multiple of it, and -3 has the multiples of 3.
void read_steps_per_print(ConfigBlock& top, Config& config) {
  const auto steps = top.whole("steps_per_print");
  if (!steps) return;
  if (*steps == 0)
    return top.add(Severity::error, "steps_per_print",
                   "expected a whole number other than 0 (DeepSpeed: ZeroDivisionError: integer "
                   "modulo by zero); leave it out "
                   "for no such lines");
  config.steps_per_print = *steps > 0 ? *steps
                           : *steps == std::numeric_limits<int64_t>::min()
                               ? std::numeric_limits<int64_t>::max()
                               : -*steps;
  if (*steps < 0)
    top.add(Severity::note, "steps_per_print",
            str("counts as ", *config.steps_per_print, ", as in DeepSpeed"));
}

}  // namespace

void read_reports(ConfigBlock& top, Config& config) {
  read_steps_per_print(top, config);
  assign(config.wall_clock_breakdown, top.boolean("wall_clock_breakdown"));
  ConfigBlock logger = top.block("comms_logger");
  CommsLogger& comms = config.comms_logger;
  assign(comms.enabled, logger.boolean("enabled"));
  assign(comms.verbose, logger.boolean("verbose"));
  assign(comms.prof_all, logger.boolean("prof_all"));
  assign(comms.prof_ops, logger.texts("prof_ops"));
  if (const JsonValue* ops = logger.peek("prof_ops"); ops != nullptr &&
                                                      ops->kind == JsonValue::Kind::array &&
                                                      ops->items.size() > comms.prof_ops.size())
    logger.add(Severity::note, "prof_ops",
               "what is no string in it has no effect: no collective is called so");
  assign(comms.debug, logger.boolean("debug"));
  if (comms.enabled && comms.prof_all && !comms.prof_ops.empty())
    logger.add(Severity::note, "prof_ops",
               "has no effect while prof_all is true; write \"prof_all\": false");
  logger.finish();
  ConfigBlock monitor = top.block("csv_monitor");
  assign(config.csv_monitor.enabled, monitor.boolean("enabled"));
  assign(config.csv_monitor.output_path, monitor.path("output_path"));
  assign(config.csv_monitor.job_name, monitor.path("job_name"));
  monitor.finish();
}

}  // namespace zl
