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
#include <concepts>

#include "stages/deepspeed/keys.h"
#include "tensor/error.h"

namespace zl::members {

using Json = JsonValue::Kind;
using Value = const JsonValue&;
using Texts = std::vector<std::string>;

// Whether a value has a type, and its name in a sentence.
struct Fit {
  bool fits;
  const char* type;
};

// get() of each type: the value as that type. If the value has another type, `to` is unspecified.
inline Fit get(Value v, bool& to) {
  to = v.is_true();  // "true" in quotes too, as in DeepSpeed
  return {v.kind == Json::boolean || (v.kind == Json::string && to), "true or false"};
}
inline Fit get(Value v, double& to) {
  to = v.number;
  return {v.kind == Json::number, "a number"};
}
// 5e8 is a whole number too.
template <std::integral T>
Fit get(Value v, T& to) {
  constexpr bool seed = std::unsigned_integral<T>;
  const char* end = v.text.data() + v.text.size();
  const auto [stop, error] = std::from_chars(v.text.data(), end, to);
  bool fits = error == std::errc() && stop == end;
  if (!fits && v.number == std::floor(v.number) && std::abs(v.number) < 0x1p63) {
    const int64_t whole = int64_t(v.number);
    fits = std::in_range<T>(whole);
    to = T(whole);
  }
  return {fits && v.kind == Json::number,
          seed ? "a whole number from 0 to 2^64 - 1" : "a whole number"};
}
inline Fit get(Value v, std::string& to) {
  to = v.text;
  return {v.kind == Json::string && to.find('\0') == to.npos, "a string without zero bytes"};
}
inline Fit get(Value v, Texts& to) {  // one string too
  if (v.kind == Json::string) to.push_back(v.text);
  for (Value item : v.items)
    if (item.kind == Json::string) to.push_back(item.text);
  return {v.kind == Json::string || (v.kind == Json::array && to.size() == v.items.size()),
          "an array of strings"};
}
template <class T>
Fit get(Value v, std::optional<T>& to) {
  return get(v, to.emplace());
}

// The JSON of a member. An empty text is null.
template <class T>
std::string json(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_arithmetic_v<T>)
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

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();  // of a range: no limit
using Show = std::function<std::string()>;

// A value of type T that `take` puts where it belongs; of a number with its range.
template <class T>
ConfigMember value(std::function<void(const T&)> take, Show show, int64_t least = kLeast,
                   int64_t most = kMost) {
  const auto store = [=](Value v) -> std::string {
    T taken{};
    const auto [fits, type] = get(v, taken);
    if (fits && (least == kLeast || in_range(v.number, least, most))) return take(taken), "";
    if (most < kMost) return str(type, " from ", least, " to ", most);
    return least > kLeast ? str(type, " of at least ", least) : type;
  };
  return {store, std::move(show)};
}

// A member. A whole number below the range means that it is not given.
template <class T>
ConfigMember at(T& member, int64_t least = kLeast, int64_t most = kMost) {
  const auto show = [=, &member] {
    if constexpr (std::is_same_v<T, int64_t>)
      if (member < least) return std::string("null");
    return json(member);
  };
  return value<T>([&member](const T& v) { member = v; }, show, least, most);
}

// One of the names, whose place in the list `take` gets.
inline ConfigMember one_of(const Texts& names, std::function<void(size_t)> take, Show show,
                           bool any_case = false) {
  const auto store = [=](Value v) -> std::string {
    const auto shape = [&](const std::string& s) { return any_case ? lower_case(s) : s; };
    const auto name = std::ranges::find(names, shape(v.text), shape);
    if (name != names.end()) return take(size_t(name - names.begin())), "";
    const std::string all = json(names);
    return "one of " + all.substr(1, all.size() - 2);
  };
  return {store, std::move(show), names};
}
// `first`: the number of the first name's enumerator; one below it means that none is given.
template <class E>
requires std::is_enum_v<E> ConfigMember one_of(E& member, const Texts& names, size_t first = 0) {
  return one_of(
      names, [=, &member](size_t i) { member = E(i + first); },
      [=, &member] {
        return size_t(member) < first ? "null" : json(names[size_t(member) - first]);
      });
}
inline ConfigMember one_of(std::string& member, const Texts& names) {
  return one_of(
      names, [=, &member](size_t i) { member = names[i]; }, [&] { return json(member); });
}

// A type of numbers in any case. What is shown is what a run has, also where no key gives it.
inline ConfigMember type_of(std::optional<Dtype>& member, const Config& c) {
  static const Texts names{"fp32", "bf16", "fp16"};
  const auto show = [&] { return json(names[size_t(member.value_or(gradient_type(c)))]); };
  return one_of(
      names, [&member](size_t type) { member = Dtype(type); }, show, true);
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
  const auto store = [&o](Value v) -> std::string {
    bool fits = v.kind == Json::array && v.items.size() == 2;
    for (Value i : v.items) fits &= i.kind == Json::number && i.number >= 0 && i.number < 1;
    if (fits) o.beta1 = v.items[0].number, o.beta2 = v.items[1].number;
    return fits ? "" : "an array of two numbers from 0 to below 1";
  };
  return {store, [&o] { return str("[", json(o.beta1), ", ", json(o.beta2), "]"); }};
}

}  // namespace zl::members
