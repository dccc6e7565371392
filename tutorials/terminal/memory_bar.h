// Bars of memory by use for a terminal: one letter and one colour per use.
#pragma once

#include <string>
#include <vector>

#include "tensor/memory.h"
#include "tutorials/terminal/terminal.h"

namespace zl::cli {

// A part of a bar: `letter`s for `bytes`, in the colour `code`.
struct BarPart {
  int64_t bytes;
  char letter;
  const char* code;
};

// The part of a memory use: 'P' for parameters and so on, as use_letters() lists.
BarPart bar_part(MemoryUse use, int64_t bytes);

// `columns` columns, of which the parts fill one for each columns-th of `scale` [B]; the rest is
// blank. Where letters do not come out even, later parts get fewer.
std::string bar(const std::vector<BarPart>& parts, int64_t scale, int columns,
                const Terminal& terminal);

// "P parameter M master G gradient O optimizer A activation C comm W workspace"
std::string use_letters(const Terminal& terminal);

}  // namespace zl::cli
