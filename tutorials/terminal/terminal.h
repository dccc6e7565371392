// What stdout or stderr is connected to, and text in colour where that is wanted. Colour never
// carries meaning alone.
#pragma once

#include <string>
#include <string_view>

namespace zl::cli {

enum class Color { automatic, always, never };

struct Terminal {
  bool rewrites = false;  // a terminal on which a line can be written over
  bool colored = false;
  int width() const;  // columns of the terminal of stderr, as of now

  std::string bold(std::string_view text) const { return paint(text, "1"); }
  std::string dim(std::string_view text) const { return paint(text, "2"); }
  std::string red(std::string_view text) const { return paint(text, "31"); }
  std::string yellow(std::string_view text) const { return paint(text, "33"); }

  // `code`: of ECMA-48's SGR, such as "1" or "1;34".
  std::string paint(std::string_view text, const char* code) const;
};

// automatic: in colour on a terminal, unless NO_COLOR is set (to anything but "") or TERM is dumb
// or missing; CLICOLOR_FORCE (but "" or "0") asks for colour elsewhere, and NO_COLOR beats it.
Terminal standard_error(Color color);
Terminal standard_output(Color color);

}  // namespace zl::cli
