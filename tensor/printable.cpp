#include "tensor/printable.h"

#include <cstdio>

namespace zl {
namespace {

// U+0000 to U+001F, U+007F to U+009F, line separators, and marks of writing direction.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

Character first_character(std::string_view text) {
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

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    Character c = first_character(text);
    if (c.bytes == 0) c = {uint8_t(text[0]), 1};
    char escape[8] = "\\n";
    if (c.code != '\n') std::snprintf(escape, sizeof escape, "\\u%04x", c.code & 0xffff);
    shown += is_control(c.code) ? std::string_view(escape) : text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
  }
  return shown;
}

}  // namespace zl
