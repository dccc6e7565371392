// Text from outside (names, values, messages of other programs) for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace zl {

// The text with control characters and marks of writing direction as escapes such as \n and \u202e,
// so that it cannot break a line or change what a terminal shows.
std::string printable(std::string_view text);

}  // namespace zl
