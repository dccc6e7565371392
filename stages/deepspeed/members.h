// How a JSON value becomes a member of a Config, and how the member becomes JSON again. The rows of
// key_table.cpp are made of these; nothing else needs them:
//
//   at(c.steps, 1)                            "a whole number of at least 1"
//   one_of(c.as, {"deepspeed-1", "fsdp2"})    "one of "deepspeed-1", "fsdp2""
//
// What they return refers to the member, which must outlive it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "stages/deepspeed/keys.h"
#include "tensor/error.h"

namespace zl::members {

using Json = JsonValue::Kind;
using Value = const JsonValue&;
using Texts = std::vector<std::string>;

// get() of each type: the value as that type, which it may not have, and then the result is any.
inline ConfigFit get(Value v, bool& to) {
  to = v.is_true();
  return {v.kind == Json::boolean, "true or false"};
}
inline ConfigFit get(Value v, double& to) {
  to = v.number;
  return {v.kind == Json::number, "a number"};
}
// 5e8 is a whole number too, but a seed has digits only.
template <std::integral T>
ConfigFit get(Value v, T& to) {
  constexpr bool seed = std::is_unsigned_v<T>;
  std::conditional_t<seed, T, int64_t> whole = 0;
  const char* end = v.text.data() + v.text.size();
  const auto [stop, error] = std::from_chars(v.text.data(), end, whole);
  bool fits = error == std::errc() && stop == end;
  if (!fits && !seed && v.number == std::floor(v.number) && std::abs(v.number) < 0x1p63)
    whole = decltype(whole)(v.number), fits = true;
  to = T(whole);
  return {fits && v.kind == Json::number,
          seed ? "a whole number from 0 to 2^64 - 1" : "a whole number"};
}
inline ConfigFit get(Value v, std::string& to) {
  to = v.text;
  return {v.kind == Json::string && to.find('\0') == to.npos, "a string without zero bytes"};
}
inline ConfigFit get(Value v, Texts& to) {  // one string too
  if (v.kind == Json::string) to.push_back(v.text);
  for (Value item : v.items)
    if (item.kind == Json::string) to.push_back(item.text);
  return {v.kind == Json::string || (v.kind == Json::array && to.size() == v.items.size()),
          "an array of strings"};
}
template <class T>
ConfigFit get(Value v, std::optional<T>& to) {
  return get(v, to.emplace());
}

// The JSON of a member. An empty text is null.
template <class T>
std::string json(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
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

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// A member, of a number with its range. A whole number below the range means that it is not given.
template <class T>
ConfigMember at(T& member, int64_t least = kLeast, int64_t most = kMost) {
  const auto store = [=, &member](Value v) {
    T value{};
    ConfigFit fit = get(v, value);
    if (least != kLeast) fit = in_range(fit, v, least, most);
    if (fit.fits) member = std::move(value);
    return fit;
  };
  const auto show = [=, &member] {
    if constexpr (std::is_same_v<T, int64_t>)
      if (member < least) return std::string("null");
    return json(member);
  };
  return {store, show};
}

using Show = std::function<std::string()>;

// One of the names, whose place in the list `take` gets.
inline ConfigMember one_of(const Texts& names, std::function<void(size_t)> take, Show show,
                           bool any_case = false) {
  std::string type;
  for (const std::string& name : names)
    if (!name.empty()) type += (type.empty() ? "one of " : ", ") + in_quotes(name);
  const auto store = [=](Value v) {
    const auto shape = [&](const std::string& s) { return any_case ? lower_case(s) : s; };
    const auto name = std::ranges::find(names, shape(v.text), shape);
    const bool fits = name != names.end() && !v.text.empty();
    if (fits) take(size_t(name - names.begin()));
    return ConfigFit{fits, type, names};
  };
  return {store, std::move(show)};
}
inline ConfigMember one_of(std::string& member, const Texts& names) {
  return one_of(
      names, [=, &member](size_t i) { member = names[i]; }, [&] { return json(member); });
}
template <class E>
requires std::is_enum_v<E> ConfigMember one_of(E& member, const Texts& names) {
  return one_of(
      names, [&](size_t i) { member = E(i); },
      [=, &member] { return json(names.at(size_t(member))); });
}

// A whole number that `take` puts where it belongs.
inline ConfigMember whole(int64_t least, int64_t most, std::function<void(int64_t)> take,
                          Show show) {
  const auto store = [=](Value v) {
    int64_t n = 0;
    const ConfigFit fit = at(n, least, most).store(v);
    if (fit.fits) take(n);
    return fit;
  };
  return {store, std::move(show)};
}

// A switch that a rule (stages/deepspeed/rules.cpp) reads.
inline ConfigMember by_rule(Show show = {}) {
  const auto check = [on = false](Value v) mutable { return get(v, on); };
  return {check, std::move(show)};
}

// A type of numbers. What is shown is what a run has, also where no key gives it.
inline ConfigMember type_of(std::optional<Dtype>& member, const Config& c) {
  static const Texts names{"fp32", "bf16", "fp16"};
  return one_of(
      names, [&member](size_t type) { member = Dtype(type); },
      [&] { return json(names[size_t(member.value_or(gradient_type(c)))]); }, true);
}

// A number of ranks of a group; 0 and 1 mean none.
inline ConfigMember group(int64_t& size) {
  return {at(size, 0).store, [&size] { return json(std::max<int64_t>(1, size)); }};
}

// The optimizer's name in any case. "Adam" means AdamW unless adam_w_mode is false.
inline ConfigMember optimizer_type(OptimizerConfig& o) {
  using enum OptimizerKind;
  const auto take = [&o](size_t i) { o.kind = i == 2 ? sgd : adamw; };
  const auto show = [&o] { return json(o.kind == sgd ? "SGD" : o.decoupled ? "AdamW" : "Adam"); };
  return one_of({"Adam", "AdamW", "SGD"}, take, show, true);
}

// AdamW's two decay rates as one array.
inline ConfigMember betas_of(OptimizerConfig& o) {
  const auto store = [&o](Value v) {
    bool fits = v.kind == Json::array && v.items.size() == 2;
    for (Value i : v.items) fits &= i.kind == Json::number && i.number >= 0 && i.number < 1;
    if (fits) o.beta1 = v.items[0].number, o.beta2 = v.items[1].number;
    return ConfigFit{fits, "an array of two numbers from 0 to below 1"};
  };
  return {store, [&o] { return str("[", json(o.beta1), ", ", json(o.beta2), "]"); }};
}

}  // namespace zl::members
