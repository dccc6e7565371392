// The rows of the table, and how a JSON value becomes a member of a Config and JSON again:
// at(c.steps, 1) takes a whole number of at least 1, one_of() one of several names.
// tutorials/reference/configuration.md says what each key sets.

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "stages/deepspeed/keys.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl {
namespace {

using nlohmann::json;
using Text = const std::string&;  // JSON

using Strings = std::vector<std::string>;

// AdamW's two decay rates.
using Betas = std::array<double, 2>;

// The name of the argument's type in a sentence.
const char* type_name(bool) { return "true or false"; }
const char* type_name(double) { return "a number"; }
const char* type_name(std::integral auto) { return "a whole number"; }
const char* type_name(uint64_t) { return "a whole number from 0 to 2^64 - 1"; }
const char* type_name(const std::string&) { return "a string without zero bytes"; }
const char* type_name(const Strings&) { return "an array of strings"; }
const char* type_name(const Betas&) { return "an array of two numbers from 0 to below 1"; }

// INT64_MIN and INT64_MAX are no limits.
bool in_range(double number, int64_t least, int64_t most) {
  return (least == INT64_MIN || number >= double(least)) &&
         (most == INT64_MAX || number <= double(most));
}

// Whether the value has the type and, a number, the range; then it is in `to`.
template <class T>
bool get(json v, T& to, int64_t least, int64_t most) try {
  constexpr double end = std::is_unsigned_v<T> ? 0x1p64 : 0x1p63;
  if (std::is_same_v<T, bool> && v == "true") v = true;  // in quotes, as in DeepSpeed
  // As in --set zerolab.no_weight_decay=*bias.
  if (std::is_same_v<T, Strings> && v.is_string()) v = json::array({v});
  if (std::is_integral_v<T> && v.is_number_float() && std::abs(double(v)) >= end) return false;
  if (std::is_same_v<T, int64_t> && v.is_number_unsigned() && uint64_t(v) > INT64_MAX) return false;
  if (v.is_number() && !in_range(v, least, most)) return false;
  to = v.get<T>();
  if constexpr (std::is_same_v<T, std::string>) return to.find('\0') == to.npos;
  if constexpr (std::is_same_v<T, Betas>)
    if (std::ranges::any_of(to, [](double beta) { return beta < 0 || beta >= 1; })) return false;
  return to == v;  // 5e8, but not 2.5 for a whole number
} catch (const json::exception&) {
  return false;
}

// The JSON of a member. An empty text is null.
std::string json_of(const std::string& text) {
  return text.empty() ? "null" : in_quotes(text, text.npos);
}
std::string json_of(const auto& value) { return json(value).dump(); }

// A value of type T that `take` puts where it belongs; of a number with its range.
template <class T>
ConfigMember value(std::function<void(const T&)> take, std::function<std::string()> show,
                   int64_t least = INT64_MIN, int64_t most = INT64_MAX) {
  const auto store = [=](Text text) -> std::string {
    T taken{};
    if (get(json::parse(text), taken, least, most)) return take(taken), "";
    if (most < INT64_MAX) return str(type_name(taken), " from ", least, " to ", most);
    const bool said = least == INT64_MIN || std::is_unsigned_v<T>;  // the type says it
    return said ? type_name(taken) : str(type_name(taken), " of at least ", least);
  };
  return {store, show};
}

// A member. A whole number below the range means that it is not given.
template <class T>
ConfigMember at(T& member, int64_t least = INT64_MIN, int64_t most = INT64_MAX) {
  const auto show = [=, &member] {
    const json shown = member;
    return shown.is_number() && !in_range(shown, least, INT64_MAX) ? "null" : json_of(member);
  };
  return value<T>([&member](const T& v) { member = v; }, show, least, most);
}

// A member with a value for each of these names. `any_case`: DeepSpeed takes them so.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;
template <class T>
ConfigMember one_of(T& member, const Choices<T>& choices, bool any_case = false) {
  const auto store = [=, &member](Text text) {
    const auto same = any_case ? strcasecmp : std::strcmp;
    const std::string given = text_of(text);
    std::string list;
    for (const auto& [name, value] : choices) {
      if (given.size() == name.size() && same(given.c_str(), name.c_str()) == 0)
        return member = value, std::string();
      list += str(list.empty() ? "one of \"" : ", \"", name, "\"");
    }
    return list;
  };
  const auto show = [=, &member] {
    for (const auto& [name, value] : choices)
      if (value == member) return json_of(name);
    return std::string("null");
  };
  return {store, show};
}

// A number of ranks; 0 and 1 mean none.
ConfigMember group(int64_t& size) {
  return {at(size, 0).store, [&size] { return json_of(std::max<int64_t>(1, size)); }};
}

// Shown is what a run has, also where no key gives the type.
ConfigMember type_of(std::optional<Dtype>& type, const Config& c) {
  const Choices<std::optional<Dtype>> types{
      {"fp32", Dtype::f32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::f16}};
  const auto show = [&type, &c, types] {
    std::optional<Dtype> shown = type.value_or(gradient_type(c));
    return one_of(shown, types).show();
  };
  return {one_of(type, types, true).store, show};
}

// The key is refused, or has no effect, unless this is true.
Unused must(bool be, const std::string& reason) { return be ? Unused{} : Unused{reason, true}; }
Unused used_if(bool is, const std::string& reason) { return is ? Unused{} : Unused{reason, false}; }
Unused operator|(const Unused& first, const Unused& second) {
  return first.reason.empty() ? second : first;
}

// DeepSpeed passes parameters on to the class of the type, which knows only its own.
Unused for_type(bool fits) {
  return must(fits, "is no parameter of this type (DeepSpeed refuses it); leave it out");
}
// A key that makes stage 3 a variant.
Unused makes(const Config& c, const char* variant, bool is_used = false) {
  return used_if(is_used || c.stage == StageKind(variant),
                 str("it chooses ", variant, " only where one run has stage 3 and neither ",
                     "--stage nor \"as\" is given"));
}
constexpr char kDisk[] = "it is for the device nvme";

using Keys = std::vector<ConfigKey>;
void add(Keys& all, const char* block, Keys rows) {
  for (ConfigKey& row : rows) row.block = block, all.push_back(std::move(row));
}

void add_update(Keys& all, Config& c) {
  // bf16 keeps 8 significant bits of a sum and fp16 11, but reproducible sums need fp32's 24.
  const std::string fp32 = "zerolab.reproducible adds in fp32; leave it out or write \"fp32\"";
  const Dtype sums = c.grad_accum_dtype.value_or(Dtype::f32),
              sent = c.communication_data_type.value_or(Dtype::f32);
  add(all, "",
      {{"train_batch_size", at(c.train_batch_size, 1, 1 << 30)},
       {"train_micro_batch_size_per_gpu", at(c.micro_batch, 1, 1 << 20)},
       {"gradient_accumulation_steps", at(c.accumulation, 1, 1 << 20)},
       {"gradient_clipping", at(c.gradient_clipping, 0), "1.0"},
       {"communication_data_type", type_of(c.communication_data_type, c), "",
        must(!c.reproducible || sent == Dtype::f32, fp32) |
            must(!c.communication_data_type || c.stage != StageKind("zero3_qgz"),
                 "leave it out: zero3_qgz sends its gradients in 4 bits")}});
  add(all, "data_types",
      {{"grad_accum_dtype", type_of(c.grad_accum_dtype, c), "",
        must(!c.reproducible || sums == Dtype::f32, fp32) |
            must(sums == Dtype::f32 || sums == c.precision,
                 "is neither fp32 nor the type of this run's gradients")}});
  using enum OptimizerKind;
  OptimizerConfig& o = c.optimizer;
  ConfigMember optimizer = one_of(o.kind, {{"Adam", adamw}, {"AdamW", adamw}, {"SGD", sgd}}, true);
  // "Adam" means AdamW unless adam_w_mode is false.
  optimizer.show = [&o] {
    return o.kind == sgd ? "\"SGD\"" : o.decoupled ? "\"AdamW\"" : "\"Adam\"";
  };
  const Unused adam = for_type(o.kind == adamw), of_sgd = for_type(o.kind == sgd);
  const auto both = [&o] { return json_of(Betas{o.beta1, o.beta2}); };
  const ConfigMember betas =
      value<Betas>([&o](const Betas& b) { o.beta1 = b[0], o.beta2 = b[1]; }, both);
  add(all, "optimizer", {{"type", optimizer}});
  add(all, "optimizer.params",
      {{"lr", at(o.lr, 0), "0.001"},
       {"betas", betas, "[0.9,0.999]", adam},
       {"eps", at(o.eps, 0), "1e-08", adam},
       {"weight_decay", at(o.weight_decay, 0), "0.0"},
       {"bias_correction", at(o.bias_correction), "true", adam},
       {"adam_w_mode", at(o.decoupled), "true", adam},
       {"torch_adam", value<bool>([](bool) {}, {}), "false", adam},
       {"momentum", at(o.momentum, 0), "0.0", of_sgd},
       {"dampening", at(o.dampening), "0.0", of_sgd},
       {"nesterov", at(o.nesterov), "false",
        of_sgd | must(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
                      str("Nesterov momentum needs a momentum above 0 and dampening 0, not ",
                          o.momentum, " and ", o.dampening))}});
}

void add_schedule_and_types(Keys& all, Config& c) {
  using enum ScheduleKind;
  ScheduleConfig& s = c.schedule;
  add(all, "scheduler",
      {{"type", one_of(s.kind, {{"WarmupLR", warmup},
                                {"WarmupDecayLR", warmup_decay},
                                {"WarmupCosineLR", warmup_cosine}})}});
  const Choices<WarmupType> shapes{{"log", WarmupType::log}, {"linear", WarmupType::linear}};
  const bool cosine = s.kind == warmup_cosine, decay = s.kind == warmup_decay;
  const Unused any = for_type(s.kind != constant), rates = for_type(s.kind == warmup || decay),
               ratios = for_type(cosine), ends = for_type(cosine || decay);
  add(all, "scheduler.params",
      {{"warmup_min_lr", at(s.warmup_min_lr), "0.0", rates},
       {"warmup_max_lr", at(s.warmup_max_lr), "", rates},
       {"warmup_num_steps", at(s.warmup_num_steps, 1), "1000", any},
       {"warmup_type", one_of(s.warmup_type, shapes), "\"log\"", any},
       {"total_num_steps", at(s.total_num_steps, 1), "", ends},
       {"warmup_min_ratio", at(s.warmup_min_ratio), "0.0", ratios},
       {"cos_min_ratio", at(s.cos_min_ratio), "0.0001", ratios}});
  LossScaleConfig& l = c.loss_scale;
  const auto precision = [&c](Dtype type) {
    return value<bool>([&c, type](bool on) { c.precision = on ? type : c.precision; },
                       [&c, type] { return json_of(c.precision == type); });
  };
  const ConfigMember min_scale =
      value<int64_t>([&l](int64_t n) { l.min_scale = double(n); }, at(l.min_scale).show, 0);
  const double scale = l.static_scale;
  const bool fp16 = c.precision == Dtype::f16;
  // Many files have these keys while fp16 is off; that needs no note.
  const Unused dynamic = used_if(!fp16 || scale == 0, "it is for fp16 with a dynamic loss scale");
  add(all, "fp16",
      {{"enabled", precision(Dtype::f16), "false"},
       // The scale and its reciprocal must be normal fp32 numbers.
       {"loss_scale", at(l.static_scale, 0), "0.0",
        must(scale == 0 || (scale >= 0x1p-126 && scale <= 0x1p126),
             str("expected 0 or a number from 2^-126 to 2^126, not ", scale))},
       {"initial_scale_power", at(l.initial_scale_power, -126, 126), "16", dynamic},
       {"loss_scale_window", at(l.window, 1), "1000", dynamic},
       {"hysteresis", at(l.hysteresis), "2", dynamic},
       {"consecutive_hysteresis", at(l.consecutive_hysteresis), "false", dynamic},
       {"min_loss_scale", min_scale, "1.0",
        must(!fp16 || l.min_scale >= 1, "must be at least 1 where losses are scaled") | dynamic}});
  add(all, "bf16",
      {{"enabled", precision(Dtype::bf16), "false"},
       {"check_grad_overflow", at(c.check_grad_overflow), "true"}});
}

void add_zero(Keys& all, Config& c) {
  using enum OffloadDevice;
  const ConfigMember stage = value<int64_t>([&c](int64_t n) { c.stage = kStages[n]; },
                                            [&c] { return json_of(stage_number(c.stage)); }, 0, 3);
  const ConfigMember old =
      value<bool>([&c](bool on) { c.offload_optimizer = on ? cpu : none; }, {});
  Overlap& o = c.overlap;
  const bool on_disk = c.offload_optimizer == nvme, param_on_disk = c.offload_param == nvme;
  const Unused stage_3 = used_if(shards_parameter(c.stage), "it is for stage 3"),
               disk = used_if(on_disk, kDisk);
  add(all, "zero_optimization",
      {{"stage", stage, "0"},
       {"reduce_bucket_size", at(c.reduce_bucket_size, 1), "500000000"},
       {"allgather_bucket_size", at(c.allgather_bucket_size, 0), "500000000"},
       {"overlap_comm", at(o.overlap_comm), "null"},
       {"stage3_prefetch_bucket_size", at(o.prefetch_bucket_size, 0), "50000000", stage_3},
       {"stage3_param_persistence_threshold", at(c.persistence_threshold, 0), "100000",
        used_if(c.as == "deepspeed-3", "it is for the prediction of \"as\": \"deepspeed-3\"")},
       {"stage3_max_live_parameters", at(o.max_live_parameters, 0), "1000000000", stage_3},
       {"stage3_max_reuse_distance", at(o.max_reuse_distance, 0), "1000000000", stage_3},
       {"sub_group_size", at(c.swap.sub_group_size, 0), "1000000000", disk},
       {"zero_hpz_partition_size", group(c.ranks_per_node), "1",
        makes(c, "zero3_hpz", file_of(c.stage).groups != VariantGroups::none)},
       {"zero_quantized_weights", at(c.zero_quantized_weights), "false", makes(c, "zero3_qwz")},
       {"zero_quantized_gradients", at(c.zero_quantized_gradients), "false", makes(c, "zero3_qgz")},
       {"cpu_offload", old}});
  const Choices<OffloadDevice> devices{{"none", none}, {"cpu", cpu}, {"nvme", nvme}};
  const char* folder = "nvme needs nvme_path: the folder in which the file is made";
  add(all, "zero_optimization.offload_optimizer",
      {{"device", one_of(c.offload_optimizer, devices), "\"none\"",
        must(!on_disk || !c.nvme_path.empty(), folder) |
            used_if(shards_optimizer(c.stage), "ddp offloads nothing")},
       {"nvme_path", at(c.nvme_path), "null", disk},
       {"pipeline_read", at(c.swap.pipeline_read), "false", disk},
       {"pipeline_write", at(c.swap.pipeline_write), "false", disk}});
  add(all, "zero_optimization.offload_param",
      {{"device", one_of(c.offload_param, devices), "\"none\"",
        must(!param_on_disk || !c.nvme_path.empty(), folder) |
            must(c.offload_param == none || c.stage != StageKind("zero3_qwz"),
                 "leave it out: zero3_qwz quantizes its parameter shard on the device") |
            stage_3},
       {"nvme_path", at(c.param_nvme_path), "null",
        must(!param_on_disk || c.param_nvme_path == c.nvme_path,
             str("is ", c.param_nvme_path, ", but offload_optimizer's is ", c.nvme_path,
                 ", and a rank makes one file; write the same")) |
            used_if(param_on_disk, kDisk)}});
}

void add_ours(Keys& all, Config& c) {
  for (auto [block, m] :
       {std::pair{"csv_monitor", &c.csv_monitor}, {"tensorboard", &c.tensorboard}})
    add(all, block,
        {{"enabled", at(m->enabled), "false"},
         {"output_path", at(m->output_path), "null"},
         {"job_name", at(m->job_name), "\"DeepSpeedJobName\""}});
  add(all, "activation_checkpointing",
      {{"cpu_checkpointing", at(c.cpu_checkpointing), "false"},
       {"number_checkpoints", at(c.checkpoints, 1), "null"}});
  using enum Recompute;
  Choices<std::string> presets;
  for (const Preset& p : zl::presets()) presets.emplace_back(p.name, p.name);
  Choices<std::string> models;
  for (const std::string& model : gpt_names()) models.emplace_back(model, model);
  const ConfigMember data = value<std::string>([&c](const std::string& name) { c.data = name; },
                                               [&c] { return json_of(c.data.value_or("")); });
  const Choices<Recompute> recompute{
      {"none", none}, {"selective", selective}, {"full", full}, {"false", none}, {"true", full}};
  add(all, "zerolab",
      {{"defaults", one_of(c.defaults, {{"ours", "ours"}, {"deepspeed", "deepspeed"}})},
       {"as", one_of(c.as, presets)},
       {"reproducible", at(c.reproducible), "",
        must(c.ordered || !c.reproducible,
             "needs sums in rank order, and \"ordered\" is false; leave one of them out")},
       {"ordered", at(c.ordered)},
       {"replicas", group(c.replicas), "", makes(c, "hsdp")},
       {"separate_master", at(c.optimizer.separate_master)},
       {"no_weight_decay", at(c.optimizer.no_weight_decay)},
       {"recompute", one_of(c.recompute, recompute), "",
        must(c.recompute == full || !(c.cpu_checkpointing || c.checkpoints > 0),
             "activation_checkpointing needs \"full\"; write that, or leave one out")},
       {"model", one_of(c.model, models)},
       {"data", data, "", must(c.data != "", "the name is empty")},
       {"seed", at(c.seed, 0)},
       {"steps", at(c.steps, 1)}});
}

}  // namespace

std::vector<ConfigKey> config_keys(Config& c) {
  Keys all;
  for (const auto add_part : {add_update, add_schedule_and_types, add_zero, add_ours})
    add_part(all, c);
  add_keys_without_effect(all);
  for (size_t i = 0; i < all.size(); ++i) {  // of new blocks too, which may be in a block
    const std::string path = all[i].block;
    const size_t dot = path.rfind('.');
    const std::string block = dot == path.npos ? "" : path.substr(0, dot),
                      key = path.substr(dot + 1);
    const ConfigMember object{[](Text text) { return text[0] == '{' ? "" : "an object"; }};
    if (!path.empty() && !find_key(all, block, key)) all.push_back({key, object, "", {}, block});
  }
  return all;
}

}  // namespace zl
