// Numbers that the ZeRO paper prints, and what its own formulas give: Rajbhandari et al. 2020,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv:1910.02054v3).
#pragma once

#include <string>
#include <vector>

namespace zl {

struct PaperFigure {
  std::string section;   // "3.2", "Table 1"
  std::string quantity;  // what the number is of
  std::string formula;
  std::string unit;      // "GB" (1e9 bytes), "B" (1e9 parameters), "%"
  double printed = 0;    // by the paper
  double computed = 0;   // by the formula
  double digit = 0;      // one unit of the last printed digit
  bool at_most = false;  // the paper prints a bound
  std::string deviates;  // where the formula does not give what is printed: why; "": it does
  // Whether the formula gives the printed number, rounded or cut, or keeps the bound.
  bool follows() const;
};
std::vector<PaperFigure> paper_figures();

}  // namespace zl
