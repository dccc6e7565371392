// The block "zero_optimization", as DeepSpeed 0.19.8 takes it (runtime/zero/config.py,
// runtime/zero/offload_config.py).

#include "stages/deepspeed/config_reader.h"
#include "stages/deepspeed/config_type.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

// "zero_optimization": true is DeepSpeed's old way to say stage 1.
bool read_deprecated_zero(ConfigBlock& top, Config& config) {
  const JsonValue* value = top.peek("zero_optimization");
  if (value == nullptr || value->kind != JsonValue::Kind::boolean) return false;
  top.take("zero_optimization");
  config.stage = value->boolean ? StageKind::zero1 : StageKind::ddp;
  top.add(Severity::warning, "zero_optimization",
          str(describe(*value),
              " is a deprecated format: write {\"stage\": ", value->boolean ? 1 : 0, "}"));
  return true;
}

// A key that another one has replaced. Nothing if it is absent or null.
std::optional<bool> read_deprecated(ConfigBlock& zero, const char* key, const char* instead) {
  const JsonValue* value = zero.peek(key);
  const auto on = zero.boolean(key);
  if (value == nullptr || value->kind == JsonValue::Kind::null) return std::nullopt;
  if (zero.peek(instead) != nullptr) {
    zero.add(Severity::error, key,
             str("leave it out, ", instead,
                 " is given too (DeepSpeed: Cannot provide deprecated parameter '", key,
                 "' and replacing parameter '", instead, "' together)"));
  } else if (on) {
    zero.add(
        Severity::warning, key,
        str("write \"", instead, "\": {\"device\": \"", *on ? "cpu" : "none",
            "\"} (DeepSpeed: Config parameter ", key, " is deprecated use ", instead, " instead)"));
  }
  return on;
}

// The stage that keys are judged by; empty: several will run.
using JudgedStage = std::optional<StageKind>;

void read_ratio(ConfigBlock& offload, JudgedStage stage) {
  const auto ratio = offload.number("ratio");
  if (!ratio || *ratio == 1) return;
  if (stage.value_or(StageKind::zero3) == StageKind::zero3)
    return offload.add(Severity::note, "ratio",
                       "has no effect yet: all of the optimizer's state is offloaded");
  offload.add(Severity::error, "ratio",
              str(*ratio,
                  " needs stage 3 (DeepSpeed: Partial offloading only supported for ZeRO Stage "
                  "3.); leave it out"));
}

void read_offload_optimizer(ConfigBlock& zero, JudgedStage stage, Config& config) {
  ConfigBlock offload = zero.block("offload_optimizer");
  const auto device = offload.text("device");
  read_ratio(offload, stage);
  if (device == "nvme")
    offload.add(
        Severity::note, "device",
        "nvme has no effect yet: optimizer state stays in the device's memory; write \"cpu\"");
  offload.finish();
  const bool old = read_deprecated(zero, "cpu_offload", "offload_optimizer").value_or(false);
  config.offload_optimizer = device == "cpu" || old;
  if (config.offload_optimizer && stage.value_or(StageKind::ddp) == StageKind::ddp) {
    zero.add(Severity::note, old ? "cpu_offload" : "offload_optimizer",
             "counts in stages 1 to 3: ddp keeps its optimizer state on the device");
  }
}

// What DeepSpeed refuses together with a reduce-scatter of gradients.
void read_scaling(ConfigBlock& top, bool reduce_scatter, JudgedStage of_run) {
  const auto prescale = top.boolean("prescale_gradients");
  const auto factor = top.number("gradient_predivide_factor");
  const bool refused = reduce_scatter && (of_run == StageKind::zero2 || of_run == StageKind::zero3);
  const std::string stage =
      str(of_run == StageKind::zero3 ? "ZeRO-3" : "ZeRO-2", " with reduce scatter enabled");
  const auto judge = [&](const char* key, const std::string& deepspeed) {
    if (!refused)
      return top.add(Severity::note, key, str("has no effect: ", find_config_key("", key)->text));
    top.add(
        Severity::error, key,
        str("leave it out: gradients are added, then divided by the number of ranks (DeepSpeed: ",
            deepspeed, stage, ")"));
  };
  if (prescale == true)
    judge("prescale_gradients", "pre-scale gradients is not yet supported with ");
  if (factor && *factor != 1)
    judge("gradient_predivide_factor",
          "gradient_predivide_factor != 1.0 is not yet supported with ");
}

}  // namespace

void read_zero(ConfigBlock& top, const ConfigSource& source, Config& config) {
  const auto judged = [&]() -> JudgedStage {
    if (source.several_stages) return std::nullopt;
    return source.stage ? source.stage : config.stage.value_or(StageKind::ddp);
  };
  if (read_deprecated_zero(top, config)) return read_scaling(top, true, judged());
  ConfigBlock zero = top.block("zero_optimization");
  if (const auto stage = zero.whole("stage")) config.stage = kStages[*stage];
  assign(config.reduce_bucket_size, zero.whole("reduce_bucket_size"));
  assign(config.allgather_bucket_size, zero.whole("allgather_bucket_size"));
  const JudgedStage stage = judged();
  read_offload_optimizer(zero, stage, config);
  if (read_deprecated(zero, "cpu_offload_param", "offload_param") == true)
    zero.add(Severity::note, "cpu_offload_param",
             "has no effect yet: parameters stay in the device's memory");
  const JsonValue* norm = zero.peek("compute_grad_norm");
  const bool never = stage == StageKind::ddp || stage == StageKind::zero3;
  if (norm != nullptr && to_boolean(*norm, true) == false && never)
    zero.add(
        Severity::error, "compute_grad_norm",
        "write true (DeepSpeed: compute_grad_norm=false is supported only with ZeRO Stage 1 or 2)");
  const JsonValue* scatter = zero.peek("reduce_scatter");
  read_scaling(top, scatter == nullptr || to_boolean(*scatter, true) != false, stage);
  zero.finish();
}

}  // namespace zl
