#include "tutorials/terminal/memory_bar.h"

namespace zl::cli {
namespace {

struct Look {
  char letter;
  const char *code, *name;
};
constexpr Look kLooks[kMemoryUses] = {{'P', "34", "parameter"},  {'M', "94", "master"},
                                      {'G', "33", "gradient"},   {'O', "32", "optimizer"},
                                      {'A', "35", "activation"}, {'C', "36", "comm"},
                                      {'W', "90", "workspace"}};

}  // namespace

BarPart bar_part(MemoryUse use, int64_t bytes) {
  const Look& look = kLooks[size_t(use)];
  return {bytes, look.letter, look.code};
}

std::string bar(const std::vector<BarPart>& parts, int64_t scale, int columns,
                const Terminal& terminal) {
  std::string text;
  int64_t bytes = 0;
  size_t filled = 0;
  for (const BarPart& part : parts) {
    bytes += part.bytes;
    const auto end = size_t(scale > 0 ? (bytes * columns + scale / 2) / scale : 0);
    if (end <= filled) continue;
    text += terminal.paint(std::string(end - filled, part.letter), part.code);
    filled = end;
  }
  return text + std::string(size_t(columns) > filled ? size_t(columns) - filled : 0, ' ');
}

std::string use_letters(const Terminal& terminal) {
  std::string text;
  for (const Look& look : kLooks)
    text += (text.empty() ? "" : " ") + terminal.paint(std::string(1, look.letter), look.code) +
            " " + look.name;
  return text;
}

}  // namespace zl::cli
