// Text from outside (file names, flag values, messages of other programs) for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace zl::cli {

// Replaces what could control the terminal or reorder the line: control characters except line
// feed and tab, marks of writing direction such as U+202E, and bytes that are not UTF-8. Each
// becomes `replacement`, or if that is empty its code, such as \u001b or \xff.
std::string printable(std::string_view text, std::string_view replacement = "");
// The same for a text that must stay on one line, such as a file's name: \u000a for a line feed.
std::string printable_line(std::string_view text);

}  // namespace zl::cli
