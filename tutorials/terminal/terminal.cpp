#include "tutorials/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "tensor/error.h"

namespace zl::cli {
namespace {

// Whether an environment variable is neither missing nor `no`.
bool is_set(const char* variable, std::string_view no = "") {
  const char* value = std::getenv(variable);
  return value && *value && value != no;
}

Terminal connected(int file) {
  const bool rewrites = isatty(file) == 1 && is_set("TERM", "dumb"),
             wanted = rewrites || is_set("CLICOLOR_FORCE", "0");
  return {.rewrites = rewrites, .colored = wanted && !is_set("NO_COLOR")};
}

struct Look {
  char letter;
  const char *code, *name;
};
constexpr Look kLooks[kMemoryUses] = {{'P', "34", "parameter"},  {'M', "94", "master"},
                                      {'G', "33", "gradient"},   {'O', "32", "optimizer"},
                                      {'A', "35", "activation"}, {'C', "36", "comm"},
                                      {'W', "90", "workspace"}};

}  // namespace

int Terminal::width() const {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string Terminal::paint(std::string_view text, const char* code) const {
  return colored ? str("\x1b[", code, "m", text, "\x1b[0m") : std::string(text);
}

Terminal standard_error() { return connected(STDERR_FILENO); }
Terminal standard_output() { return connected(STDOUT_FILENO); }

BarPart bar_part(MemoryUse use, int64_t bytes) {
  return {bytes, kLooks[size_t(use)].letter, kLooks[size_t(use)].code};
}

std::string bar(const std::vector<BarPart>& parts, int64_t scale, int columns,
                const Terminal& terminal) {
  std::string text;
  int64_t bytes = 0, filled = 0;
  for (const BarPart& part : parts) {
    bytes += part.bytes;
    const int64_t end = scale > 0 ? (bytes * columns + scale / 2) / scale : 0;
    if (end <= filled) continue;
    text += terminal.paint(std::string(size_t(end - filled), part.letter), part.code);
    filled = end;
  }
  return text + std::string(size_t(std::max<int64_t>(0, columns - filled)), ' ');
}

std::string use_letters(const Terminal& terminal) {
  std::string text;
  for (const auto& [letter, code, name] : kLooks)
    text += str(text.empty() ? "" : " ", terminal.paint(std::string(1, letter), code), " ", name);
  return text;
}

}  // namespace zl::cli
