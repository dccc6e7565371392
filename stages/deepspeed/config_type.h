// Whether a value of a configuration has the type and the range of its key, with DeepSpeed's
// freedoms where it has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/json_text.h"

namespace zl {

// What a value is as a number or a boolean. `checked`: in a block that pydantic checks, so that
// "2", 2.0 and true count as numbers, and 1, "yes" and "on" as true.
std::optional<int64_t> to_whole(const JsonValue& value, bool checked);
std::optional<double> to_number(const JsonValue& value, bool checked);
std::optional<bool> to_boolean(const JsonValue& value, bool checked);

// "" if the value is one that `key` can have; else a sentence: what was expected, what came, and
// what DeepSpeed says. null and "auto" are judged by whoever calls.
std::string misfit(const ConfigKey& key, const JsonValue& value);

// Whether the value is the one that the JSON text `json` says.
bool is_value(const ConfigKey& key, const JsonValue& value, const char* json);

std::string lower_case(std::string text);

}  // namespace zl
