// Lists as people type them: "fp32,bf16".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zl::cli {

// The parts between commas. An empty text is one empty part.
inline std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

}  // namespace zl::cli
