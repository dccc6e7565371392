#include "tutorials/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace zl::cli {
namespace {

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

Terminal connected(int file, Color color) {
  const std::string term = environment("TERM"), force = environment("CLICOLOR_FORCE");
  Terminal terminal;
  terminal.rewrites = isatty(file) == 1 && !term.empty() && term != "dumb";
  const bool wanted = terminal.rewrites || (!force.empty() && force != "0");
  terminal.colored = color == Color::always ||
                     (color == Color::automatic && wanted && environment("NO_COLOR").empty());
  return terminal;
}

}  // namespace

int Terminal::width() const {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string Terminal::paint(std::string_view text, const char* code) const {
  if (!colored) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

Terminal standard_error(Color color) { return connected(STDERR_FILENO, color); }
Terminal standard_output(Color color) { return connected(STDOUT_FILENO, color); }

}  // namespace zl::cli
