// What the rows of the schema are made of: types of values, how a value becomes a member of Config
// and JSON again, and when a key is used. Only key_table.cpp needs it.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <type_traits>

#include "nn/gpt.h"
#include "stages/deepspeed/keys.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl::effects {

using Json = JsonValue::Kind;
using Value = const JsonValue&;
using Of = const Config&;
using Texts = std::vector<std::string>;

// The names of an enumeration, in its order.
template <class E>
constexpr const char* kNames[4] = {};
template <>
constexpr const char* kNames<OffloadDevice>[] = {"none", "cpu", "nvme"};
template <>
constexpr const char* kNames<WarmupType>[] = {"log", "linear"};
template <>
constexpr const char* kNames<Recompute>[] = {"none", "selective", "full"};
template <>
constexpr const char* kNames<Dtype>[] = {"fp32", "bf16", "fp16"};
template <>
constexpr const char* kNames<ScheduleKind>[] = {"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

// set() of each type of a member: sets it if the value fits, and says which values do. If the value
// does not fit, the member has any value.
inline ConfigFit set(Value v, bool& to) {
  to = v.is_true();
  return {v.kind == Json::boolean, "true or false"};
}
inline ConfigFit set(Value v, double& to) {
  to = v.number;
  return {v.kind == Json::number, "a number"};
}
inline ConfigFit set(Value v, uint64_t& to) {
  const char* end = v.text.data() + v.text.size();
  const auto [stop, error] = std::from_chars(v.text.data(), end, to);
  return {v.kind == Json::number && stop == end && error == std::errc(),
          "a whole number from 0 to 2^64 - 1"};
}
template <std::integral T>
ConfigFit set(Value v, T& to) {
  const auto whole = to_whole(v);
  to = T(whole.value_or(0));
  return {whole.has_value(), "a whole number"};
}
inline ConfigFit set(Value v, std::string& to) {
  to = v.text;
  return {v.kind == Json::string && to.find('\0') == to.npos, "a string without zero bytes"};
}
inline ConfigFit set(Value v, Texts& to) {  // one string too
  to.clear();
  if (v.kind == Json::string) to.push_back(v.text);
  for (const JsonValue& item : v.items)
    if (item.kind == Json::string) to.push_back(item.text);
  return {v.kind == Json::string || (v.kind == Json::array && to.size() == v.items.size()),
          "an array of strings"};
}
// `i`: the place of the value among the names.
inline ConfigFit one_of(const std::string& value, const Texts& names, size_t& i, bool any_case) {
  const auto shape = [&](const std::string& s) { return any_case ? lower_case(s) : s; };
  for (i = 0; i < names.size() && shape(names[i]) != shape(value);) ++i;
  std::string all;
  for (const std::string& name : names)
    if (!name.empty()) all += (all.empty() ? "one of " : ", ") + in_quotes(name);
  return {i < names.size() && !value.empty(), all, names};
}
template <class E>
requires std::is_enum_v<E> ConfigFit set(Value v, E& to) {
  size_t i = 0;
  const Texts names{std::begin(kNames<E>), std::end(kNames<E>)};
  const ConfigFit fit = one_of(v.text, names, i, std::is_same_v<E, Dtype>);
  to = E(i);
  return fit;
}
// Also as a boolean: all blocks, or none.
inline ConfigFit set(Value v, Recompute& to) {
  const ConfigFit fit = set<Recompute>(v, to);
  const bool boolean = v.kind == Json::boolean;
  if (boolean) to = v.is_true() ? Recompute::full : Recompute::none;
  return {fit.fits || boolean, fit.type + ", true or false", fit.choices};
}
// A member that the file may leave without a value.
template <class T>
ConfigFit set(Value v, std::optional<T>& to) {
  return set(v, to.emplace());
}

// The JSON of a member. An empty text is null.
template <class T>
std::string json(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_enum_v<T>)
    return json(std::string(kNames<T>[int(value)]));
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(value);
  else if constexpr (std::is_floating_point_v<T>)
    return shortest(value);
  else
    return std::string_view(value).empty() ? "null" : in_quotes(value, std::string::npos);
}
inline std::string json(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + json(text);
  return "[" + all + "]";
}
template <class T>
std::string json(const std::optional<T>& value) {
  return value ? json(*value) : "null";
}

// The member that `path` leads to: &Config::optimizer, &OptimizerConfig::lr.
template <auto... path>
constexpr ConfigMember at{[](Value v, Config& c) { return set(v, (c.*....*path)); },
                          [](Of c) { return json((c.*....*path)); }};
// One with a range.
template <int64_t least, int64_t most, auto... path>
constexpr ConfigMember within{
    [](Value v, Config& c) { return in_range(set(v, (c.*....*path)), v, least, most); },
    at<path...>.show};
template <int64_t least, auto... path>
constexpr ConfigMember at_least = within<least, kNoLimit, path...>;
template <auto... path>
constexpr ConfigMember count_or_null{at_least<1, path...>.store, [](Of c) {
                                       return (c.*....*path) > 0 ? json((c.*....*path)) : "null";
                                     }};
// A key that a rule reads. It is checked here, and nothing is stored.
template <class T>
constexpr ConfigMember by_rule(std::string (*show)(Of) = nullptr) {
  return {[](Value v, Config&) {
            T ignored{};
            return set(v, ignored);
          },
          show};
}
template <Dtype type>
constexpr ConfigMember is = by_rule<bool>([](Of c) { return json(c.precision == type); });
// A size of groups, for which 0 and 1 mean none.
template <auto member>
constexpr ConfigMember groups{at_least<0, member>.store,
                              [](Of c) { return json(std::max<int64_t>(1, c.*member)); }};
// A name of a list.
template <auto member, auto names>
constexpr ConfigMember named{[](Value v, Config& c) {
                               size_t i = 0;
                               c.*member = v.text;
                               return one_of(v.text, names(), i, false);
                             },
                             at<member>.show};
inline Texts preset_names() {
  Texts names;
  for (const Preset& p : presets()) names.push_back(p.name);
  return names;
}
constexpr ConfigMember kModel{named<&Config::model, gpt_names>.store,
                              [](Of c) { return json(c.model.value_or("small")); }};
// Gradients are communicated in the type in which they accumulate unless a key says otherwise, and
// accumulate in their own; the values that a run has are shown.
constexpr ConfigMember kSentType{
    at<&Config::communication_data_type>.store,
    [](Of c) { return json(c.communication_data_type.value_or(gradient_type(c))); }};
constexpr ConfigMember kSumType{at<&Config::grad_accum_dtype>.store,
                                [](Of c) { return json(gradient_type(c)); }};
// "Adam" means AdamW unless adam_w_mode is false.
constexpr ConfigMember kType{
    [](Value v, Config& c) {
      size_t i = 0;
      const ConfigFit fit = one_of(v.text, {"Adam", "AdamW", "SGD"}, i, true);
      c.optimizer.kind = i == 2 ? OptimizerKind::sgd : OptimizerKind::adamw;
      return fit;
    },
    [](Of c) {
      const bool sgd = c.optimizer.kind == OptimizerKind::sgd;
      return json(sgd ? "SGD" : c.optimizer.decoupled ? "AdamW" : "Adam");
    }};
constexpr ConfigMember kBetas{
    [](Value v, Config& c) {
      bool fits = v.kind == Json::array && v.items.size() == 2;
      for (Value i : v.items) fits &= i.kind == Json::number && i.number >= 0 && i.number < 1;
      if (fits) c.optimizer.beta1 = v.items[0].number, c.optimizer.beta2 = v.items[1].number;
      return ConfigFit{fits, "an array of two numbers from 0 to below 1"};
    },
    [](Of c) { return str("[", json(c.optimizer.beta1), ", ", json(c.optimizer.beta2), "]"); }};
constexpr ConfigMember kLossScale{
    [](Value v, Config& c) {
      const double n = c.loss_scale.static_scale = v.number;
      // The scale and its reciprocal must be normal fp32 numbers.
      return ConfigFit{v.kind == Json::number && (n == 0 || (n >= 0x1p-126 && n <= 0x1p126)),
                       "0 or a number from 2^-126 to 2^126"};
    },
    [](Of c) { return json(c.loss_scale.static_scale); }};
constexpr ConfigMember kMinScale{// DeepSpeed's are whole
                                 [](Value v, Config& c) {
                                   int64_t scale = 0;
                                   const ConfigFit fit = in_range(set(v, scale), v, 0, kNoLimit);
                                   c.loss_scale.min_scale = double(scale);
                                   return fit;
                                 },
                                 [](Of c) { return json(c.loss_scale.min_scale); }};
constexpr ConfigMember kStage{[](Value v, Config& c) {
                                int64_t stage = 0;
                                const ConfigFit fit = in_range(set(v, stage), v, 0, 3);
                                if (fit.fits) c.stage = kStages[stage];
                                return fit;
                              },
                              [](Of c) { return json(stage_number(c.stage)); }};
constexpr ConfigMember kPersistence{
    at_least<0, &Config::persistence_threshold>.store,
    [](Of c) {  // DeepSpeed's own, in its preset (stages/predict/preset_forms.cpp)
      return json(c.persistence_threshold.value_or(c.as == "deepspeed-3" ? 100'000 : 0));
    }};

// What uses a key, and what is said where nothing does.
constexpr char kOther[] = "is no parameter of this type (DeepSpeed refuses it); leave it out";
constexpr char kDisk[] = "it is for the device nvme";
using Condition = ConfigCondition;
using enum Condition::Otherwise;
using enum ScheduleKind;
// DeepSpeed passes parameters on to the class of the type, which knows only its own.
constexpr Condition only(bool (*holds)(Of)) { return {holds, kOther, error}; }
constexpr Condition kAdam = only([](Of c) { return c.optimizer.kind == OptimizerKind::adamw; });
constexpr Condition kSgd = only([](Of c) { return c.optimizer.kind == OptimizerKind::sgd; });
template <auto... kinds>
constexpr Condition of = only([](Of c) { return ((c.schedule.kind == kinds) || ...); });
constexpr Condition kAnySchedule = of<warmup, warmup_decay, warmup_cosine>,
                    kRates = of<warmup, warmup_decay>, kEnds = of<warmup_decay, warmup_cosine>,
                    kRatios = of<warmup_cosine>;
constexpr Condition kNvme{[](Of c) { return c.offload_optimizer == OffloadDevice::nvme; }, kDisk,
                          note};
constexpr Condition kNvmeParam{[](Of c) { return c.offload_param == OffloadDevice::nvme; }, kDisk,
                               note};
constexpr Condition kDynamic{
    [](Of c) { return c.precision == Dtype::f16 && c.loss_scale.static_scale == 0; },
    "it is for fp16 with a dynamic loss scale"};
constexpr Condition kStage3{[](Of c) { return shards_parameter(c.stage); },
                            "it is for stage 3, where parameters are sharded"};
constexpr Condition kThreshold{
    [](Of c) { return c.as == "deepspeed-3"; },
    "every parameter is sharded, whatever its size. It counts only in what compare and plan "
    "predict of \"as\": \"deepspeed-3\""};
constexpr Condition kProfOps{[](Of c) { return !c.comms_logger.prof_all; },
                             "prof_all is true; write \"prof_all\": false"};
// bf16 keeps 8 significant bits of a sum and fp16 11, but reproducible sums need fp32's 24.
constexpr Condition kFp32Sums{
    [](Of c) {
      constexpr auto fp32 = Dtype::f32;
      return !c.reproducible || (c.communication_data_type.value_or(fp32) == fp32 &&
                                 c.grad_accum_dtype.value_or(fp32) == fp32);
    },
    "zerolab.reproducible adds in fp32; leave it out or write \"fp32\"", error};
constexpr Condition kReplicated{
    [](Of c) { return c.replicated_micro_batches; },
    "ranks read different micro-batches, so none holds a copy to leave out; \"zerolab\": "
    "{\"replicated_micro_batches\": true} gives all the same"};

}  // namespace zl::effects
