// Every setting of a loaded configuration with its value, where that comes from, and both defaults.
#pragma once

#include <string>
#include <vector>

#include "stages/deepspeed/config.h"

namespace zl {

struct ConfigValue {
  std::string key;     // "zero_optimization.stage"
  std::string value;   // as JSON
  std::string origin;  // "ds.json:7", "--set …", "default", "derived: 32 / 4 ranks / 1", "auto in
                       // ds.json:7: …"
  std::string ours;    // our default as JSON; empty: none
  std::string deepspeed;  // DeepSpeed's; empty: none
  bool differ = false;    // both are there and not the same
};

// Honoured keys that this configuration uses (no momentum with AdamW), and keys without effect yet
// whose default differs from DeepSpeed's; in the order of the schema.
std::vector<ConfigValue> effective_values(const LoadedConfig& loaded);

}  // namespace zl
