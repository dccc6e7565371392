#include "stages/deepspeed/config_type.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>
#include <vector>

#include "tensor/error.h"

namespace zl {
namespace {

using Kind = ConfigType::Kind;
using Json = JsonValue::Kind;

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

bool in_range(const ConfigType& type, double number) {
  return number >= type.least && number <= type.most;
}

bool is_choice(const ConfigKey& key, const JsonValue& value) {
  const std::string text = key.block[0] == '\0' ? lower_case(value.text) : value.text;
  const auto known = words(key.type.choices);
  return value.kind == Json::string && std::find(known.begin(), known.end(), text) != known.end();
}

// DeepSpeed's comms_logger takes a list of anything.
bool is_list_of_anything(const ConfigKey& key) {
  return std::string_view(key.block) == "comms_logger";
}

// One string stands for an array of it, except where pydantic wants a list.
bool are_texts(const ConfigKey& key, const JsonValue& value) {
  if (value.kind == Json::string) return !config_block_rule(key.block).checked;
  return value.kind == Json::array &&
         (is_list_of_anything(key) ||
          std::all_of(value.items.begin(), value.items.end(),
                      [](const JsonValue& item) { return item.kind == Json::string; }));
}

bool are_betas(const JsonValue& value) {
  return value.kind == Json::array && value.items.size() == 2 &&
         std::all_of(value.items.begin(), value.items.end(), [](const JsonValue& item) {
           return item.kind == Json::number && item.number >= 0 && item.number < 1;
         });
}

// zerolab.seed, the one key that takes all of uint64.
bool is_seed(const ConfigKey& key) {
  return std::string_view(key.block) == "zerolab" && std::string_view(key.key) == "seed";
}

bool is_uint64(const JsonValue& value) {
  uint64_t seed = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, seed);
  return value.kind == Json::number && error == std::errc() && stop == end;
}

bool fits(const ConfigKey& key, const JsonValue& value) {
  const bool checked = config_block_rule(key.block).checked;
  if (key.type.strict && value.kind == Json::boolean) return false;
  switch (key.type.kind) {
    case Kind::boolean: return to_boolean(value, checked).has_value();
    case Kind::whole: {
      const auto whole = to_whole(value, checked);
      return (whole && in_range(key.type, double(*whole))) || (is_seed(key) && is_uint64(value));
    }
    case Kind::number: {
      const auto number = to_number(value, checked);
      return number && in_range(key.type, *number);
    }
    case Kind::text: return value.kind == Json::string;
    case Kind::choice: return is_choice(key, value);
    case Kind::texts: return are_texts(key, value);
    case Kind::betas: return are_betas(value);
    case Kind::object: return value.kind == Json::object;
    case Kind::any: return true;
  }
  return true;
}

std::string shown(double number) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

std::string range_of(const ConfigType& type) {
  const bool below = std::isinf(type.most), above = std::isinf(type.least);
  return below && above ? ""
         : below        ? " of at least " + shown(type.least)
                        : " from " + shown(type.least) + " to " + shown(type.most);
}

std::string listed(const char* choices, const char* quote, const char* last) {
  const auto all = words(choices);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 < all.size() ? ", " : last) + std::string(quote) + all[i] + quote;
  return text;
}

std::string expectation(const ConfigKey& key) {
  switch (key.type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::whole:
      return is_seed(key) ? "a whole number from 0 to 2^64 - 1"
                          : "a whole number" + range_of(key.type);
    case Kind::number: return "a number" + range_of(key.type);
    case Kind::text: return "a string";
    case Kind::choice: return listed(key.type.choices, "\"", " or ");
    case Kind::texts: return is_list_of_anything(key) ? "an array" : "an array of strings";
    case Kind::betas: return "an array of two numbers from 0 to below 1";
    case Kind::object: return "an object { … }";
    case Kind::any: return "anything";
  }
  return "";
}

// pydantic's sentence for a value of a wrong type, or "".
std::string pydantic_says(const ConfigKey& key, const JsonValue& value) {
  const bool text = value.kind == Json::string, plain = text || value.kind == Json::number;
  switch (key.type.kind) {
    case Kind::boolean:
      return std::string("Input should be a valid boolean") +
             (plain ? ", unable to interpret input" : "");
    case Kind::whole:
      return text ? "Input should be a valid integer, unable to parse string as an integer"
             : value.kind == Json::number && value.number == std::floor(value.number)
                 ? ""  // too large for us alone
             : value.kind == Json::number
                 ? "Input should be a valid integer, got a number with a fractional part"
                 : "Input should be a valid integer";
    case Kind::number:
      return std::string("Input should be a valid number") +
             (text ? ", unable to parse string as a number" : "");
    case Kind::text: return "Input should be a valid string";
    case Kind::choice: return "Input should be " + listed(key.type.choices, "'", " or ");
    case Kind::texts: return "Input should be a valid list";
    case Kind::object: return "Input should be a valid dictionary";
    case Kind::betas:
    case Kind::any: return "";
  }
  return "";
}

std::string deepspeed_says(const ConfigKey& key, const JsonValue& value) {
  if (std::string_view(key.says).starts_with("stage "))
    return key.says;  // an enumeration: one sentence whatever came
  const bool checked = config_block_rule(key.block).checked;
  const bool number =
      to_number(value, checked).has_value() && !(key.type.strict && value.kind == Json::boolean);
  const bool whole = key.type.kind == Kind::whole && to_whole(value, checked).has_value();
  const bool ranged = key.type.kind == Kind::choice
                          ? value.kind == Json::string
                          : whole || (number && key.type.kind == Kind::number);
  // Beyond the largest, unless DeepSpeed has one too: that limit is ours.
  const bool high = number && to_number(value, checked) > key.type.most;
  if (high && std::string_view(key.says).find("less than or equal") == std::string_view::npos)
    return "";
  if (ranged && key.says[0] != '\0') {
    std::string says = key.says;
    const bool low = to_number(value, checked).value_or(0) < key.type.least;
    if (low && says.ends_with("less than or equal to 1"))
      says = "Input should be greater than or equal to 0";
    if (const size_t at = says.find("{}"); at != says.npos)
      says.replace(at, 2, value.kind == Json::string ? value.text : describe(value));
    return says;
  }
  if (ranged && key.type.kind != Kind::choice) return "";  // the range is ours
  if (!checked) return "";
  if (key.type.strict) {
    const std::string what =
        key.type.kind == Kind::whole ? " must be an integer" : " must be a number";
    return key.path() + what + (value.kind == Json::boolean ? ", not bool" : "");
  }
  return pydantic_says(key, value);
}

// Of an array: what in it is wrong.
std::string what_came(const ConfigKey& key, const JsonValue& value) {
  const size_t n = value.items.size();
  if (key.type.kind == Kind::betas && n == 2)
    return describe(value.items[0]) + " and " + describe(value.items[1]);
  if (key.type.kind == Kind::betas && n > 0)
    return str("an array of ", n, n == 1 ? " element" : " elements");
  if (key.type.kind != Kind::texts) return describe(value);
  for (size_t i = 0; i < n; ++i)
    if (value.items[i].kind != Json::string)
      return str("an array whose element ", i + 1, " is ", describe(value.items[i]));
  return describe(value);
}

}  // namespace

std::string misfit(const ConfigKey& key, const JsonValue& value) {
  if (fits(key, value)) return "";
  const std::string came = what_came(key, value);
  const std::string says = deepspeed_says(key, value);
  return str("expected ", expectation(key), ", not ", came,
             says.empty() ? "" : " (DeepSpeed: " + says + ")");
}

bool is_value(const ConfigKey& key, const JsonValue& value, const char* json) {
  if (json[0] == '\0') return false;
  const bool checked = config_block_rule(key.block).checked;
  const JsonValue wanted = parse_json(json, "the schema").root;
  if (wanted.kind == Json::boolean) return to_boolean(value, checked) == wanted.boolean;
  if (wanted.kind == Json::number) return to_number(value, checked) == wanted.number;
  if (wanted.kind == Json::string)
    return value.kind == Json::string && lower_case(value.text) == wanted.text;
  return wanted.kind == value.kind && wanted.kind == Json::null;
}

std::string to_string(const ConfigType& type) {
  const auto range = [&]() -> std::string {
    if (std::isinf(type.least) && std::isinf(type.most)) return "";
    if (std::isinf(type.most)) return " ≥ " + shown(type.least);
    return " " + shown(type.least) + " to " + shown(type.most);
  };
  switch (type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::whole: return "whole number" + range();
    case Kind::number: return "number" + range();
    case Kind::text: return "string";
    case Kind::choice: return listed(type.choices, "\"", ", ");
    case Kind::texts: return "array of strings";
    case Kind::betas: return "two numbers, 0 to below 1";
    case Kind::object: return "object";
    case Kind::any: return "anything";
  }
  return "";
}

}  // namespace zl
