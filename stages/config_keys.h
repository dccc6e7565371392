// Every key of DeepSpeed 0.19 that people write, and ours: what is known, and what zerolab does with it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zl {

struct ConfigKey {
  const char* block;  // path of its object: "", "zero_optimization", "optimizer.params", …
  const char* key;
  const char* note;   // "": honoured. Else it follows "not yet honoured"
};

std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view block, std::string_view key);  // null: unknown

// What someone who wrote `key` in `block` may have meant: a key of that block that is at most two edits away, or the
// path of one with this very name in another block. Empty: nothing.
std::string nearest_config_key(std::string_view block, std::string_view key);
// The nearest of `names`, at most two edits away; empty: none.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace zl
