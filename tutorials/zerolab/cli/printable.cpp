#include "tutorials/zerolab/cli/printable.h"

#include <cstdint>
#include <cstdio>

namespace zl::cli {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

// The first character of `text`. Overlong forms and surrogates are not UTF-8.
Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xc2 || first >= 0xf5) return {};
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

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
    const Character c = decode(text);
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
