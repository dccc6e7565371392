// The figures of the ZeRO paper that follow from its formulas, and those that do not.
#include "stages/residual/paper_figures.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

using namespace zl;

namespace {

double computed(const std::string& section, const std::string& quantity) {
  for (const PaperFigure& f : paper_figures())
    if (f.section == section && f.quantity.find(quantity) != std::string::npos) return f.computed;
  return -1;
}

}  // namespace

TEST_CASE("the paper's figures follow from its formulas, but for those that are named",
          "[stages]") {
  std::set<std::string> deviating;
  for (PaperFigure f : paper_figures()) {
    CAPTURE(f.section, f.quantity, f.printed, f.computed);
    CHECK(f.follows() == f.deviates.empty());
    if (!f.follows()) deviating.insert(f.section);
    // The twin: another number would be noticed.
    f.computed = f.printed + 2 * f.digit;
    CHECK_FALSE(f.follows());
  }
  CHECK(deviating == std::set<std::string>{"3.2", "6.1", "Table 2"});
}

TEST_CASE("activations and checkpoints of the paper's models have these bytes", "[stages]") {
  // Computed by hand: 12 * 1600 * 32 * 1024 * 48 = 30.199e9 elements; 48 * 32 * 1024 * 1600 =
  // 2.5166e9; 125 * 32 * 1024 * 8192 = 33.554e9. Two bytes each.
  CHECK(std::abs(computed("3.2", "activations, 1.5 B") - 60.40) < 0.005);
  CHECK(std::abs(computed("3.2", "with checkpointing") - (5.03 + 1.26)) < 0.01);
  CHECK(std::abs(computed("6.1", "checkpoints, 100 B") - 67.11) < 0.005);
  CHECK(std::abs(computed("6.1", "P_a, 16-way") - 4.19) < 0.005);
  CHECK(std::abs(computed("8", "P_a") - 8.33) < 0.005);
  CHECK(std::abs(computed("Figure 1", "zero3") - 1.875) < 1e-9);
}
