#include "tutorials/zerolab/cli/printable.h"

#include <cstdio>

#include "tensor/printable.h"

namespace zl::cli {
namespace {

bool shows_as_text(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) {
    return first <= code && code <= last;
  };
  if (code == '\n' || code == '\t') return true;
  const bool control = code < 0x20 || within(0x7f, 0x9f) || within(0x2028, 0x2029);
  const bool direction =
      code == 0x61c || within(0x200e, 0x200f) || within(0x202a, 0x202e) || within(0x2066, 0x2069);
  return !control && !direction;
}

}  // namespace

std::string printable(std::string_view text, std::string_view replacement) {
  std::string shown;
  while (!text.empty()) {
    const Character c = first_character(text);
    const size_t bytes = c.bytes > 0 ? c.bytes : 1;
    if (c.bytes > 0 && shows_as_text(c.code)) {
      shown += text.substr(0, bytes);
    } else if (!replacement.empty()) {
      shown += replacement;
    } else {
      char code[16];
      if (c.bytes > 0)
        std::snprintf(code, sizeof code, "\\u%04x", c.code);
      else
        std::snprintf(code, sizeof code, "\\x%02x", uint8_t(text[0]));
      shown += code;
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

std::string printable_line(std::string_view text) {
  std::string line;
  for (const char c : printable(text))
    line += c == '\n' ? "\\u000a" : c == '\t' ? "\\u0009" : std::string(1, c);
  return line;
}

}  // namespace zl::cli
