// The effective value of every setting, for `config explain`.

#include <algorithm>

#include "stages/deepspeed/reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

std::string json(bool on) { return on ? "true" : "false"; }
std::string json(int64_t number) { return std::to_string(number); }
std::string json(uint64_t number) { return std::to_string(number); }
std::string json(double number) { return shortest(number); }
std::string json(const std::string& text) { return in_quotes(text, text.size()); }
std::string json(const char* text) { return in_quotes(text); }
std::string json(Dtype dtype) {
  return dtype == Dtype::f16 ? "\"fp16\"" : dtype == Dtype::bf16 ? "\"bf16\"" : "\"fp32\"";
}
std::string json(WarmupType type) { return type == WarmupType::log ? "\"log\"" : "\"linear\""; }
std::string json(ScheduleKind kind) {
  constexpr const char* kNames[] = {"null", "\"WarmupLR\"", "\"WarmupDecayLR\"",
                                    "\"WarmupCosineLR\""};
  return kNames[int(kind)];
}
std::string json(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts)
    all += (all.empty() ? "" : ", ") + in_quotes(text, text.size());
  return "[" + all + "]";
}
template <class T>
std::string json(const std::optional<T>& value) {
  return value ? json(*value) : "null";
}

using Values = std::map<std::string, std::string>;  // only of the keys that a configuration uses

void add_training(const Config& c, Values& v) {
  v["train_micro_batch_size_per_gpu"] = json(c.micro_batch);
  v["gradient_accumulation_steps"] = json(c.accumulation);
  v["gradient_clipping"] = json(c.gradient_clipping);
  const OptimizerConfig& o = c.optimizer;
  const bool adam = o.kind == OptimizerKind::adamw;
  v["optimizer.type"] = json(!adam ? "SGD" : o.decoupled ? "AdamW" : "Adam");
  v["optimizer.params.lr"] = json(o.lr);
  v["optimizer.params.weight_decay"] = json(o.weight_decay);
  if (adam) {
    v["optimizer.params.betas"] = "[" + json(o.beta1) + ", " + json(o.beta2) + "]";
    v["optimizer.params.eps"] = json(o.eps);
    v["optimizer.params.bias_correction"] = json(o.bias_correction);
    v["optimizer.params.adam_w_mode"] = json(o.decoupled);
  } else {
    v["optimizer.params.momentum"] = json(o.momentum);
    v["optimizer.params.dampening"] = json(o.dampening);
    v["optimizer.params.nesterov"] = json(o.nesterov);
  }
  const ScheduleConfig& s = c.schedule;
  v["scheduler.type"] = json(s.kind);
  if (s.kind == ScheduleKind::constant) return;
  v["scheduler.params.warmup_num_steps"] = json(s.warmup_num_steps);
  v["scheduler.params.warmup_type"] = json(s.warmup_type);
  if (s.kind != ScheduleKind::warmup)
    v["scheduler.params.total_num_steps"] = json(s.total_num_steps);
  if (s.kind == ScheduleKind::warmup_cosine) {
    v["scheduler.params.warmup_min_ratio"] = json(s.warmup_min_ratio);
    v["scheduler.params.cos_min_ratio"] = json(s.cos_min_ratio);
  } else {
    v["scheduler.params.warmup_min_lr"] = json(s.warmup_min_lr);
    v["scheduler.params.warmup_max_lr"] = json(s.warmup_max_lr);
  }
}

void add_types_and_zero(const Config& c, Values& v) {
  const LossScaleConfig& scale = c.loss_scale;
  const bool fp16 = c.precision == Dtype::f16, bf16 = c.precision == Dtype::bf16;
  v["fp16.enabled"] = json(fp16);
  if (fp16) v["fp16.loss_scale"] = json(scale.static_scale);
  if (fp16 && scale.static_scale == 0) {
    v["fp16.initial_scale_power"] = json(int64_t(scale.initial_scale_power));
    v["fp16.loss_scale_window"] = json(scale.window);
    v["fp16.hysteresis"] = json(scale.hysteresis);
    v["fp16.consecutive_hysteresis"] = json(scale.consecutive_hysteresis);
    v["fp16.min_loss_scale"] = json(scale.min_scale);
  }
  v["bf16.enabled"] = json(bf16);
  if (bf16) v["bf16.check_grad_overflow"] = json(c.check_grad_overflow);
  const Dtype accumulation = gradient_type(c);
  v["data_types.grad_accum_dtype"] = json(accumulation);
  v["communication_data_type"] = json(c.communication_data_type.value_or(accumulation));
  v["zero_optimization.stage"] = json(int64_t(stage_number(c.stage)));
  v["zero_optimization.zero_hpz_partition_size"] = json(std::max<int64_t>(1, c.ranks_per_node));
  v["zero_optimization.zero_quantized_weights"] = json(c.stage == StageKind("zero3_qwz"));
  v["zero_optimization.zero_quantized_gradients"] = json(c.stage == StageKind("zero3_qgz"));
  v["zero_optimization.reduce_bucket_size"] = json(c.reduce_bucket_size);
  v["zero_optimization.allgather_bucket_size"] = json(c.allgather_bucket_size);
  v["zero_optimization.overlap_comm"] = json(c.overlap.overlap_comm);
  v["zero_optimization.stage3_prefetch_bucket_size"] = json(c.overlap.prefetch_bucket_size);
  v["zero_optimization.stage3_max_live_parameters"] = json(c.overlap.max_live_parameters);
  v["zero_optimization.stage3_max_reuse_distance"] = json(c.overlap.max_reuse_distance);
  if (c.persistence_threshold)
    v["zero_optimization.stage3_param_persistence_threshold"] = json(*c.persistence_threshold);
  v["zero_optimization.offload_optimizer.device"] = json(name(c.offload_optimizer));
  v["zero_optimization.offload_optimizer.nvme_path"] =
      json(c.offload_optimizer == OffloadDevice::nvme ? std::optional(c.nvme_path) : std::nullopt);
  v["zero_optimization.offload_optimizer.pipeline_read"] = json(c.swap.pipeline_read);
  v["zero_optimization.offload_optimizer.pipeline_write"] = json(c.swap.pipeline_write);
  v["zero_optimization.sub_group_size"] = json(c.swap.sub_group_size);
  v["zero_optimization.offload_param.device"] = json(name(c.offload_param));
  v["zero_optimization.offload_param.nvme_path"] =
      json(c.offload_param == OffloadDevice::nvme ? std::optional(c.nvme_path) : std::nullopt);
}

void add_monitor(const std::string& key, const Monitor& monitor, Values& v) {
  v[key + ".enabled"] = json(monitor.enabled);
  if (!monitor.enabled) return;
  v[key + ".output_path"] = json(monitor.output_path);
  v[key + ".job_name"] = json(monitor.job_name);
}

void add_reports_and_ours(const Config& c, Values& v) {
  v["steps_per_print"] = json(c.steps_per_print);
  v["wall_clock_breakdown"] = json(c.wall_clock_breakdown);
  v["comms_logger.enabled"] = json(c.comms_logger.enabled);
  if (c.comms_logger.enabled) {
    v["comms_logger.verbose"] = json(c.comms_logger.verbose);
    v["comms_logger.prof_all"] = json(c.comms_logger.prof_all);
    v["comms_logger.prof_ops"] = json(c.comms_logger.prof_ops);
    v["comms_logger.debug"] = json(c.comms_logger.debug);
  }
  add_monitor("csv_monitor", c.csv_monitor, v);
  add_monitor("tensorboard", c.tensorboard, v);
  v["activation_checkpointing.partition_activations"] = json(c.partition_activations);
  v["activation_checkpointing.cpu_checkpointing"] = json(c.cpu_checkpointing);
  v["activation_checkpointing.number_checkpoints"] =
      c.checkpoints > 0 ? json(c.checkpoints) : "null";
  v["zerolab.replicated_micro_batches"] = json(c.replicated_micro_batches);
  v["zerolab.as"] = json(c.as.empty() ? std::nullopt : std::optional(c.as));
  v["zerolab.reproducible"] = json(c.reproducible);
  v["zerolab.ordered"] = json(c.ordered);
  v["zerolab.replicas"] = json(std::max<int64_t>(1, c.replicas));
  v["zerolab.separate_master"] = json(c.optimizer.separate_master);
  v["zerolab.no_weight_decay"] = json(c.optimizer.no_weight_decay);
  v["zerolab.recompute"] = json(name(c.recompute));
  v["zerolab.model"] = json(c.model.value_or("small"));
  v["zerolab.data"] = json(c.data);
  v["zerolab.seed"] = json(c.seed);
  v["zerolab.steps"] = json(c.steps);
}

// "zero_optimization.prefetch_bucket_size" is the same key as
// "zero_optimization.stage3_prefetch_bucket_size". "": the key has one name.
std::string second_name(const std::string& key) {
  constexpr std::string_view kPrefix = "zero_optimization.stage3_";
  return key.starts_with(kPrefix) ? "zero_optimization." + key.substr(kPrefix.size()) : "";
}

// The origin of a default that is not the schema's.
std::string default_of(const std::string& key, const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  const auto from = [&](const char* other) {
    const auto found = loaded.origins.find(other);
    return found == loaded.origins.end() ? "default" : found->second + ": " + other;
  };
  if (key == "gradient_clipping" && c.gradient_clipping > 0)
    return "default: DeepSpeed's, as a file is given";
  if (const std::string other = second_name(key); loaded.origins.contains(other))
    return from(other.c_str());
  if (loaded.deepspeed_defaults &&
      (key.ends_with("_bucket_size") || key.ends_with("overlap_comm") ||
       key.ends_with("sub_group_size") || key.find(".pipeline_") != std::string::npos ||
       key.starts_with("zero_optimization.stage3_")))
    return "default: zerolab.defaults is \"deepspeed\"";
  if (key == "scheduler.params.warmup_max_lr" &&
      (c.schedule.kind == ScheduleKind::warmup || loaded.automatic.contains(key)))
    return "derived: the optimizer's rate";
  if (key == "optimizer.params.weight_decay" && c.optimizer.weight_decay != 0)
    return from("optimizer.params.torch_adam");
  if (key == "scheduler.params.total_num_steps") return "derived: the run's steps";
  if (key == "communication_data_type") return "derived: the type in which gradients accumulate";
  if (key == "data_types.grad_accum_dtype" && c.reproducible)
    return "derived: zerolab.reproducible adds in fp32";
  if (key == "data_types.grad_accum_dtype") return "derived: the type of gradients";
  if (key == "zero_optimization.offload_optimizer.device" &&
      c.offload_optimizer != OffloadDevice::none)
    return from("zero_optimization.cpu_offload");
  if (key == "zero_optimization.offload_param.device" && c.offload_param != OffloadDevice::none)
    return from("zero_optimization.cpu_offload_param");
  if (key == "zerolab.recompute" && c.recompute == Recompute::full)
    return from(c.partition_activations ? "activation_checkpointing.partition_activations"
                : c.cpu_checkpointing   ? "activation_checkpointing.cpu_checkpointing"
                                        : "activation_checkpointing.number_checkpoints");
  return key.starts_with("bf16.") ? from("bfloat16.enabled") : "default";
}

std::string origin_of(const std::string& key, const LoadedConfig& loaded) {
  if (const auto found = loaded.origins.find(key); found != loaded.origins.end())
    return found->second;
  const auto derived = loaded.derived.find(key), automatic = loaded.automatic.find(key);
  const std::string origin =
      derived == loaded.derived.end() ? default_of(key, loaded) : "derived: " + derived->second;
  return automatic == loaded.automatic.end() ? origin
                                             : "auto in " + automatic->second + ": " + origin;
}

bool defaults_differ(const ConfigKey& key) {
  return !key.ours.empty() && !key.deepspeed.empty() && key.ours != key.deepspeed &&
         !equals(key, parse_json(key.deepspeed, "schema"), key.ours);
}

// "prefetch_bucket_size" is the same key as "stage3_prefetch_bucket_size".
bool is_second_name(const ConfigKey& key) {
  return find_config_key(key.block, str("stage3_", key.key)) != nullptr;
}

}  // namespace

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  Values values{
      {"train_batch_size", json(c.micro_batch * c.accumulation * readers(c, loaded.ranks))},
      {"zerolab.defaults", json(loaded.deepspeed_defaults ? "deepspeed" : "ours")}};
  add_training(c, values);
  add_types_and_zero(c, values);
  add_reports_and_ours(c, values);
  std::vector<ConfigValue> all;
  for (const ConfigKey& key : config_keys()) {
    ConfigValue value{
        key.path(),          "", "", std::string(key.ours), std::string(key.deepspeed),
        defaults_differ(key)};
    if (const auto found = values.find(value.key); found != values.end()) {
      value.value = found->second;
      value.origin = origin_of(value.key, loaded);
    } else if (key.use == ConfigUse::later && value.differ && !is_second_name(key)) {
      value.value = key.ours;
      value.origin = "fixed: DeepSpeed's way has no effect yet";
    }
    if (!value.value.empty()) all.push_back(std::move(value));
  }
  return all;
}

}  // namespace zl
