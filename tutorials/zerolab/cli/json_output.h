// JSON documents as all commands print them. Templates, so that the JSON library stays out of
// headers.
#pragma once

#include <cstdio>
#include <string>

namespace zl::cli {

// Bytes that are not UTF-8, as file names may have them, become U+FFFD.
template <class Json>
std::string json_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <class Json>
void print_json(const Json& document) {
  std::fputs(json_text(document).c_str(), stdout);
}

}  // namespace zl::cli
