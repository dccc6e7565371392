#include "stages/deepspeed/config_values.h"

#include <array>
#include <charconv>
#include <functional>

#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/config_type.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Value = std::optional<std::string>;  // nothing: this configuration does not use the key

std::string json(bool on) { return on ? "true" : "false"; }
std::string json(int64_t number) { return std::to_string(number); }
std::string json(uint64_t number) { return std::to_string(number); }
std::string json(const std::string& text) { return in_quotes(text); }
std::string json(double number) {  // reads back as the same double
  std::array<char, 40> text{};
  return std::string(text.data(),
                     std::to_chars(text.data(), text.data() + text.size(), number).ptr);
}
std::string json(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + in_quotes(text);
  return "[" + all + "]";
}
std::string json(Dtype dtype) {
  return dtype == Dtype::f16 ? "\"fp16\"" : dtype == Dtype::bf16 ? "\"bf16\"" : "\"fp32\"";
}

template <class T>
Value where(bool used, const T& value) {
  return used ? Value(json(value)) : std::nullopt;
}

struct Row {
  const char* key;
  std::function<Value(const LoadedConfig&)> value;
};

const char* schedule_name(ScheduleKind kind) {
  return kind == ScheduleKind::warmup         ? "WarmupLR"
         : kind == ScheduleKind::warmup_decay ? "WarmupDecayLR"
                                              : "WarmupCosineLR";
}

std::vector<Row> training_rows() {
  const auto adam = [](const Config& c) { return c.optimizer.kind == OptimizerKind::adamw; };
  const auto scheduled = [](const Config& c) { return c.schedule.kind != ScheduleKind::constant; };
  const auto cosine = [](const Config& c) {
    return c.schedule.kind == ScheduleKind::warmup_cosine;
  };
  const auto linear = [=](const Config& c) { return scheduled(c) && !cosine(c); };
  using L = const LoadedConfig&;
  return {
      {"train_batch_size",
       [](L l) { return json(l.config.micro_batch * l.config.accumulation * l.ranks); }},
      {"train_micro_batch_size_per_gpu", [](L l) { return json(l.config.micro_batch); }},
      {"gradient_accumulation_steps", [](L l) { return json(l.config.accumulation); }},
      {"gradient_clipping", [](L l) { return json(l.config.gradient_clipping); }},
      {"optimizer.type",
       [=](L l) {
         return std::string(!adam(l.config)                ? "\"SGD\""
                            : l.config.optimizer.decoupled ? "\"AdamW\""
                                                           : "\"Adam\"");
       }},
      {"optimizer.params.lr", [](L l) { return json(l.config.optimizer.lr); }},
      {"optimizer.params.betas",
       [=](L l) {
         return adam(l.config) ? Value("[" + json(l.config.optimizer.beta1) + ", " +
                                       json(l.config.optimizer.beta2) + "]")
                               : Value();
       }},
      {"optimizer.params.eps", [=](L l) { return where(adam(l.config), l.config.optimizer.eps); }},
      {"optimizer.params.weight_decay", [](L l) { return json(l.config.optimizer.weight_decay); }},
      {"optimizer.params.bias_correction",
       [=](L l) { return where(adam(l.config), l.config.optimizer.bias_correction); }},
      {"optimizer.params.adam_w_mode",
       [=](L l) { return where(adam(l.config), l.config.optimizer.decoupled); }},
      {"optimizer.params.momentum",
       [=](L l) { return where(!adam(l.config), l.config.optimizer.momentum); }},
      {"optimizer.params.dampening",
       [=](L l) { return where(!adam(l.config), l.config.optimizer.dampening); }},
      {"optimizer.params.nesterov",
       [=](L l) { return where(!adam(l.config), l.config.optimizer.nesterov); }},
      {"scheduler.type",
       [=](L l) {
         return scheduled(l.config) ? json(std::string(schedule_name(l.config.schedule.kind)))
                                    : "null";
       }},
      {"scheduler.params.warmup_min_lr",
       [=](L l) { return where(linear(l.config), l.config.schedule.warmup_min_lr); }},
      {"scheduler.params.warmup_max_lr",
       [=](L l) { return where(linear(l.config), l.config.schedule.warmup_max_lr); }},
      {"scheduler.params.warmup_num_steps",
       [=](L l) { return where(scheduled(l.config), l.config.schedule.warmup_num_steps); }},
      {"scheduler.params.warmup_type",
       [=](L l) {
         return where(
             scheduled(l.config),
             std::string(l.config.schedule.warmup_type == WarmupType::log ? "log" : "linear"));
       }},
      {"scheduler.params.total_num_steps",
       [=](L l) {
         return where(scheduled(l.config) && l.config.schedule.kind != ScheduleKind::warmup,
                      l.config.schedule.total_num_steps);
       }},
      {"scheduler.params.warmup_min_ratio",
       [=](L l) { return where(cosine(l.config), l.config.schedule.warmup_min_ratio); }},
      {"scheduler.params.cos_min_ratio",
       [=](L l) { return where(cosine(l.config), l.config.schedule.cos_min_ratio); }},
  };
}

std::vector<Row> type_rows() {
  const auto fp16 = [](const Config& c) { return c.precision == Dtype::f16; };
  const auto dynamic = [=](const Config& c) { return fp16(c) && c.loss_scale.static_scale == 0; };
  using L = const LoadedConfig&;
  return {
      {"fp16.enabled", [=](L l) { return json(fp16(l.config)); }},
      {"fp16.loss_scale",
       [=](L l) { return where(fp16(l.config), l.config.loss_scale.static_scale); }},
      {"fp16.initial_scale_power",
       [=](L l) {
         return where(dynamic(l.config), int64_t(l.config.loss_scale.initial_scale_power));
       }},
      {"fp16.loss_scale_window",
       [=](L l) { return where(dynamic(l.config), l.config.loss_scale.window); }},
      {"fp16.hysteresis",
       [=](L l) { return where(dynamic(l.config), l.config.loss_scale.hysteresis); }},
      {"fp16.consecutive_hysteresis",
       [=](L l) { return where(dynamic(l.config), l.config.loss_scale.consecutive_hysteresis); }},
      {"fp16.min_loss_scale",
       [=](L l) { return where(dynamic(l.config), l.config.loss_scale.min_scale); }},
      {"bf16.enabled", [](L l) { return json(l.config.precision == Dtype::bf16); }},
      {"bf16.check_grad_overflow",
       [](L l) { return where(l.config.precision == Dtype::bf16, l.config.check_grad_overflow); }},
      {"communication_data_type",
       [](L l) {
         return json(l.config.communication_data_type.value_or(
             l.config.grad_accum_dtype.value_or(l.config.precision)));
       }},
      {"data_types.grad_accum_dtype",
       [](L l) { return json(l.config.grad_accum_dtype.value_or(l.config.precision)); }},
      {"zero_optimization.stage",
       [](L l) { return json(int64_t(l.config.stage.value_or(StageKind::ddp))); }},
      {"zero_optimization.reduce_bucket_size",
       [](L l) { return json(l.config.reduce_bucket_size); }},
      {"zero_optimization.allgather_bucket_size",
       [](L l) { return json(l.config.allgather_bucket_size); }},
      {"zero_optimization.offload_optimizer.device",
       [](L l) { return json(std::string(l.config.offload_optimizer ? "cpu" : "none")); }},
  };
}

std::vector<Row> report_rows() {
  using L = const LoadedConfig&;
  return {
      {"steps_per_print",
       [](L l) { return l.config.steps_per_print ? json(*l.config.steps_per_print) : "null"; }},
      {"wall_clock_breakdown", [](L l) { return json(l.config.wall_clock_breakdown); }},
      {"comms_logger.enabled", [](L l) { return json(l.config.comms_logger.enabled); }},
      {"comms_logger.verbose",
       [](L l) { return where(l.config.comms_logger.enabled, l.config.comms_logger.verbose); }},
      {"comms_logger.prof_all",
       [](L l) { return where(l.config.comms_logger.enabled, l.config.comms_logger.prof_all); }},
      {"comms_logger.prof_ops",
       [](L l) { return where(l.config.comms_logger.enabled, l.config.comms_logger.prof_ops); }},
      {"comms_logger.debug",
       [](L l) { return where(l.config.comms_logger.enabled, l.config.comms_logger.debug); }},
      {"csv_monitor.enabled", [](L l) { return json(l.config.csv_monitor.enabled); }},
      {"csv_monitor.output_path",
       [](L l) { return where(l.config.csv_monitor.enabled, l.config.csv_monitor.output_path); }},
      {"csv_monitor.job_name",
       [](L l) { return where(l.config.csv_monitor.enabled, l.config.csv_monitor.job_name); }},
      {"zerolab.defaults",
       [](L l) { return std::string(l.deepspeed_defaults ? "\"deepspeed\"" : "\"ours\""); }},
      {"zerolab.ordered", [](L l) { return json(l.config.ordered); }},
      {"zerolab.separate_master", [](L l) { return json(l.config.optimizer.separate_master); }},
      {"zerolab.no_weight_decay", [](L l) { return json(l.config.optimizer.no_weight_decay); }},
      {"zerolab.recompute", [](L l) { return json(l.config.recompute); }},
      {"zerolab.model", [](L l) { return json(l.config.model.value_or("small")); }},
      {"zerolab.data", [](L l) { return l.config.data ? json(*l.config.data) : "null"; }},
      {"zerolab.seed", [](L l) { return json(l.config.seed); }},
      {"zerolab.steps", [](L l) { return json(l.config.steps); }},
  };
}

Value value_of(const std::string& key, const LoadedConfig& loaded) {
  static const std::vector<std::vector<Row>> tables = {training_rows(), type_rows(), report_rows()};
  for (const auto& rows : tables)
    for (const Row& row : rows)
      if (row.key == key) return row.value(loaded);
  return std::nullopt;
}

// What stands behind a default that is not the schema's.
std::string default_of(const std::string& key, const LoadedConfig& loaded) {
  if (key == "gradient_clipping" && loaded.config.gradient_clipping > 0)
    return "default: DeepSpeed's, as a file is given";
  if (key.ends_with("_bucket_size") && loaded.deepspeed_defaults)
    return "default: zerolab.defaults is \"deepspeed\"";
  if (key == "scheduler.params.warmup_max_lr" &&
      loaded.config.schedule.kind == ScheduleKind::warmup)
    return "derived: the optimizer's rate";
  if (key == "scheduler.params.total_num_steps") return "derived: the run's steps";
  if (key == "communication_data_type") return "derived: the type in which gradients are added up";
  if (key == "data_types.grad_accum_dtype") return "derived: the type of gradients";
  if (key == "zero_optimization.offload_optimizer.device" && loaded.config.offload_optimizer)
    return loaded.origins.at("zero_optimization.cpu_offload") + ": cpu_offload";
  if (key.starts_with("bf16.") && loaded.origins.count("bfloat16.enabled") != 0)
    return loaded.origins.at("bfloat16.enabled") + ": bfloat16";
  return "default";
}

std::string origin_of(const std::string& key, const LoadedConfig& loaded) {
  const auto found = [&](const std::map<std::string, std::string>& map) {
    const auto at = map.find(key);
    return at == map.end() ? std::string() : at->second;
  };
  if (const std::string origin = found(loaded.origins); !origin.empty()) return origin;
  const std::string automatic = found(loaded.automatic), derived = found(loaded.derived);
  const std::string rest = derived.empty() ? default_of(key, loaded) : "derived: " + derived;
  return automatic.empty() ? rest : "auto in " + automatic + ": " + rest;
}

bool differ(const ConfigKey& key) {
  if (key.ours[0] == '\0' || key.deepspeed[0] == '\0') return false;
  return std::string_view(key.ours) != key.deepspeed &&
         !is_value(key, parse_json(key.deepspeed, "the schema").root, key.ours);
}

// "prefetch_bucket_size" stands for the same as "stage3_prefetch_bucket_size".
bool is_second_name(const ConfigKey& key) {
  return find_config_key(key.block, std::string("stage3_") + key.key) != nullptr;
}

}  // namespace

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  std::vector<ConfigValue> all;
  for (const ConfigKey& key : config_keys()) {
    const bool later = key.use == ConfigUse::later && differ(key) && !is_second_name(key);
    const Value value = later                            ? Value(key.ours)
                        : key.use == ConfigUse::honoured ? value_of(key.path(), loaded)
                                                         : Value();
    if (!value) continue;
    const std::string origin =
        later ? "fixed: DeepSpeed's way has no effect yet" : origin_of(key.path(), loaded);
    all.push_back({key.path(), *value, origin, key.ours, key.deepspeed, differ(key)});
  }
  return all;
}

}  // namespace zl
