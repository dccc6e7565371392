// What stdout or stderr is connected to, text in colour where that is wanted, and bars of memory by
// use. Colour never carries meaning alone: each use has a letter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/memory.h"

namespace zl::cli {

struct Terminal {
  bool rewrites = false;  // a terminal on which a line can be written over
  bool colored = false;
  int width() const;  // columns of the terminal of stderr, as of now

  std::string bold(std::string_view text) const { return paint(text, "1"); }
  std::string dim(std::string_view text) const { return paint(text, "2"); }

  // `code`: of ECMA-48's SGR, such as "1" or "1;34".
  std::string paint(std::string_view text, const char* code) const;
};

// In colour on a terminal, unless NO_COLOR is set (to anything but "") or TERM is dumb or missing;
// CLICOLOR_FORCE (but "" or "0") asks for colour elsewhere, and NO_COLOR beats it.
Terminal standard_error();
Terminal standard_output();

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
