// Suggestions for mistyped words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/keys.h"

namespace zl::cli {

// "; did you mean '--steps'?" if a known word is close to `word` or begins with it, else "".
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest_name(word, known);
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

}  // namespace zl::cli
