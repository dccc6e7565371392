#include "tensor/printable.h"

#include <cstdint>
#include <cstdio>

namespace zl {
namespace {

// U+0000 to U+001F, U+007F to U+009F, line separators, and marks of writing direction.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto next = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0u; };
    const auto follows = [&](size_t i) { return (next(i) & 0xc0) == 0x80; };
    uint32_t code = next(0);
    size_t bytes = 1;
    if ((code & 0xe0) == 0xc0 && follows(1)) {
      code = (code & 0x1f) << 6 | (next(1) & 0x3f);
      bytes = 2;
    } else if ((code & 0xf0) == 0xe0 && follows(1) && follows(2)) {
      code = (code & 0x0f) << 12 | (next(1) & 0x3f) << 6 | (next(2) & 0x3f);
      bytes = 3;
    }
    char escape[8] = "\\n";
    if (code != '\n') std::snprintf(escape, sizeof escape, "\\u%04x", code);
    shown += is_control(code) ? std::string_view(escape) : text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace zl
