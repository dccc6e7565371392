// Text from outside (names, values, messages of other programs) for a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zl {

// The text with control characters and marks of writing direction as escapes such as \n and \u202e,
// so that it cannot break a line or change what a terminal shows.
std::string printable(std::string_view text);

// A character of UTF-8, in which overlong forms and surrogates are wrong.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};
Character first_character(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace zl
