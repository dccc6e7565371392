// What a row of the schema does: how a value becomes a member of Config and JSON again, and when
// the key is used. Only key_table.cpp needs it.
#pragma once

#include <algorithm>
#include <type_traits>

#include "nn/gpt.h"
#include "stages/deepspeed/keys.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl::effects {

using enum ConfigUse;
using Kind = ConfigType::Kind;
using Otherwise = ConfigCondition::Otherwise;
using Texts = std::vector<std::string>;

constexpr double kNoLimit = ConfigType::kNoLimit;
constexpr ConfigType boolean{Kind::boolean}, text{Kind::text}, texts{Kind::texts},
    object{Kind::object}, any{Kind::any}, integer{Kind::whole}, number{Kind::number};
constexpr ConfigType size{Kind::whole, 0, kNoLimit}, count{Kind::whole, 1, kNoLimit};
constexpr ConfigType nonnegative{Kind::number, 0, kNoLimit}, fraction{Kind::number, 0, 1};
constexpr ConfigType stages{Kind::whole, 0, 3}, power{Kind::whole, -126, 126};
constexpr ConfigType betas{Kind::betas}, seed{Kind::seed, 0};
// No product of batch sizes overflows.
constexpr ConfigType batch{Kind::whole, 1, 1 << 20}, batches{Kind::whole, 1, 1ll << 52};
constexpr ConfigType choice(std::string_view choices) {
  return {.kind = Kind::choice, .choices = choices};
}
constexpr ConfigType device = choice("none cpu nvme");
constexpr char kTypes[] =
    "fp32 float32 float torch.float32 fp16 float16 half torch.float16 bf16 bfloat16 torch.bfloat16";
constexpr ConfigType a_model{.kind = Kind::choice, .names = [] { return gpt_names(); }};
constexpr ConfigType a_preset{.kind = Kind::choice, .names = [] {
                                Texts names;
                                for (const Preset& p : presets()) names.push_back(p.name);
                                return names;
                              }};

// The names of an enumeration, in its order.
template <class E>
constexpr const char* kNames[4] = {};
template <>
constexpr const char* kNames<OffloadDevice>[] = {"none", "cpu", "nvme"};
template <>
constexpr const char* kNames<Recompute>[] = {"none", "selective", "full"};
template <>
constexpr const char* kNames<WarmupType>[] = {"log", "linear"};
template <>
constexpr const char* kNames<ScheduleKind>[] = {nullptr, "WarmupLR", "WarmupDecayLR",
                                                "WarmupCosineLR"};

inline void set(const JsonValue& value, bool& to) { to = value.boolean; }
inline void set(const JsonValue& value, int& to) { to = int(*to_whole(value)); }
inline void set(const JsonValue& value, int64_t& to) { to = *to_whole(value); }
inline void set(const JsonValue& value, uint64_t& to) { to = to_seed(value); }
inline void set(const JsonValue& value, double& to) { to = value.number; }
inline void set(const JsonValue& value, std::string& to) { to = value.text; }
inline void set(const JsonValue& value, Dtype& to) {
  std::string name = lower_case(value.text);
  if (name.starts_with("torch.")) name.erase(0, 6);
  const bool half = name == "fp16" || name == "float16" || name == "half";
  to = half ? Dtype::f16 : name.starts_with("b") ? Dtype::bf16 : Dtype::f32;
}
inline void set(const JsonValue& value, Texts& to) {  // one string or an array
  to.clear();
  if (value.kind == JsonValue::Kind::string) to.push_back(value.text);
  for (const JsonValue& item : value.items) to.push_back(item.text);
}
inline void set(const JsonValue& value, Recompute& to) {
  to = value.boolean || value.text == "full" ? Recompute::full
       : value.text == "selective"           ? Recompute::selective
                                             : Recompute::none;
}
template <class E>
void set(const JsonValue& value, E& to) {
  for (int i = 0; i < int(std::size(kNames<E>)); ++i)
    if (kNames<E>[i] && value.text == kNames<E>[i]) to = E(i);
}
template <class T>
void set(const JsonValue& value, std::optional<T>& to) {
  set(value, to.emplace());
}

inline std::string json(bool on) { return on ? "true" : "false"; }
inline std::string json(int number) { return std::to_string(number); }
inline std::string json(int64_t number) { return std::to_string(number); }
inline std::string json(uint64_t number) { return std::to_string(number); }
inline std::string json(double number) { return shortest(number); }
inline std::string json(const std::string& text) { return in_quotes(text, text.size()); }
inline std::string json(const char* text) { return in_quotes(text); }
inline std::string json(Dtype type) {
  return json(type == Dtype::f16 ? "fp16" : type == Dtype::bf16 ? "bf16" : "fp32");
}
inline std::string json(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + json(text);
  return "[" + all + "]";
}
template <class E>
requires std::is_enum_v<E> std::string json(E value) {
  return kNames<E>[int(value)] ? json(kNames<E>[int(value)]) : "null";
}
template <class T>
std::string json(const std::optional<T>& value) {
  return value ? json(*value) : "null";
}

// An honoured key of the member that `path` leads to: &Config::optimizer, &OptimizerConfig::lr.
template <auto... path>
constexpr ConfigEffect at{honoured, "",
                          [](const JsonValue& v, Config& c) { set(v, (c.*....*path)); },
                          [](const Config& c) { return json((c.*....*path)); }};
// Honoured by a rule.
constexpr ConfigEffect shown(std::string (*show)(const Config&)) {
  return {honoured, "", nullptr, show};
}
constexpr ConfigEffect by_rule{honoured};
constexpr ConfigEffect none(std::string_view ours = "") { return {noted, ours}; }
constexpr ConfigEffect no(std::string_view ours = "") { return {refused, ours}; }
constexpr ConfigEffect gone{dead};

// What uses a key, and what is said where nothing does.
using Of = const Config&;
template <auto kind>
constexpr ConfigCondition of_optimizer{
    [](Of c) { return c.optimizer.kind == kind; },
    "is no parameter of this optimizer (DeepSpeed refuses it); leave it out", Otherwise::error};
template <auto... kinds>
constexpr ConfigCondition of_schedule{
    [](Of c) { return ((c.schedule.kind == kinds) || ...); },
    "is no parameter of this scheduler (DeepSpeed refuses it); leave it out", Otherwise::error};
template <auto device>
constexpr ConfigCondition of_nvme{[](Of c) { return c.*device == OffloadDevice::nvme; },
                                  "it is for the device nvme", Otherwise::note};
constexpr ConfigCondition kDynamic{
    [](Of c) { return c.precision == Dtype::f16 && c.loss_scale.static_scale == 0; },
    "it is for fp16 with a dynamic loss scale", Otherwise::note_range};
constexpr ConfigCondition kStage3{[](Of c) { return shards_parameter(c.stage); },
                                  "it is for stage 3, where parameters are sharded",
                                  Otherwise::note_other_values};
constexpr ConfigCondition kThreshold{
    [](Of c) { return c.as == "deepspeed-3"; },
    "every parameter is sharded, whatever its size. It counts only in what compare and plan "
    "predict of \"as\": \"deepspeed-3\"",
    Otherwise::note_other_values};

constexpr ConfigEffect kType{
    honoured, "",
    [](const JsonValue& v, Config& c) {
      c.optimizer.kind = lower_case(v.text) == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
    },
    [](Of c) {
      return json(c.optimizer.kind == OptimizerKind::sgd ? "SGD"
                  : c.optimizer.decoupled                ? "AdamW"
                                                         : "Adam");
    }};
constexpr ConfigEffect kBetas{
    honoured, "",
    [](const JsonValue& v, Config& c) {
      c.optimizer.beta1 = v.items[0].number, c.optimizer.beta2 = v.items[1].number;
    },
    [](Of c) { return str("[", json(c.optimizer.beta1), ", ", json(c.optimizer.beta2), "]"); }};
constexpr ConfigEffect kStage{
    honoured, "", [](const JsonValue& v, Config& c) { c.stage = kStages[*to_whole(v)]; },
    [](Of c) { return json(stage_number(c.stage)); }};
// Whether the run has this value.
template <auto member, auto value>
constexpr ConfigEffect is = shown([](Of c) { return json(c.*member == value); });
// A folder of nvme, where the device of this member is nvme.
template <auto member>
constexpr ConfigEffect folder_of = shown([](Of c) {
  return c.*member == OffloadDevice::nvme ? json(c.nvme_path) : "null";
});
// Members whose JSON is not their value.
template <auto member>
constexpr ConfigEffect shown_as(std::string (*show)(Of)) {
  return {honoured, "", at<member>.store, show};
}
// A size of groups, for which 0 and 1 mean none.
template <auto member>
constexpr ConfigEffect groups = shown_as<member>([](Of c) {
  return json(std::max<int64_t>(1, c.*member));
});

constexpr ConfigEffect kSentType = shown_as<&Config::communication_data_type>(
    [](Of c) { return json(c.communication_data_type.value_or(gradient_type(c))); });
constexpr ConfigEffect kSumType =
    shown_as<&Config::grad_accum_dtype>([](Of c) { return json(gradient_type(c)); });
constexpr ConfigEffect kPersistence = shown_as<&Config::persistence_threshold>(
    [](Of c) {  // DeepSpeed's own, in its preset (stages/predict/preset_forms.cpp)
      return json(c.persistence_threshold.value_or(c.as == "deepspeed-3" ? 100'000 : 0));
    });
constexpr ConfigEffect kCheckpoints = shown_as<&Config::checkpoints>(
    [](Of c) { return c.checkpoints > 0 ? json(c.checkpoints) : "null"; });
constexpr ConfigEffect kAs =
    shown_as<&Config::as>([](Of c) { return c.as.empty() ? "null" : json(c.as); });
constexpr ConfigEffect kModel =
    shown_as<&Config::model>([](Of c) { return json(c.model.value_or("small")); });
constexpr ConfigEffect kTotalSteps{
    honoured, "", at<&Config::schedule, &ScheduleConfig::total_num_steps>.store, [](Of c) {
      return c.schedule.total_num_steps > 0 ? json(c.schedule.total_num_steps) : "null";
    }};
constexpr ConfigEffect kDefaults{honoured, "\"ours\""};
constexpr ConfigEffect kQuantizedWeights =
    shown([](Of c) { return json(c.stage == StageKind("zero3_qwz")); });
constexpr ConfigEffect kQuantizedGradients =
    shown([](Of c) { return json(c.stage == StageKind("zero3_qgz")); });

}  // namespace zl::effects
