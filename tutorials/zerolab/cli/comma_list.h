// Lists as people type them: "fp32,bf16".
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace zl::cli {

// The parts between commas. An empty text is one empty part.
inline std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace zl::cli
