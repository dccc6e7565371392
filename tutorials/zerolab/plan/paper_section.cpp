#include <cmath>
#include <nlohmann/json.hpp>

#include "stages/residual/paper_figures.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/plan_sections.h"

namespace zl::cli {
namespace {

std::string with_unit(double value, const std::string& unit) {
  const double size = std::abs(value);
  return format(size >= 1000 ? "%.0f" : size >= 100 ? "%.1f" : "%.2f", value) + " " + unit;
}

}  // namespace

PlanSection paper_section() {
  PlanSection section;
  section.key = "paper";
  TextTable table;
  table.row({"section", "printed", "computed", "difference", "formula"});
  std::string deviations;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PaperFigure& f : paper_figures()) {
    table.row({str(f.section, ": ", f.quantity),
               (f.at_most ? "< " : "") + with_unit(f.printed, f.unit),
               with_unit(f.computed, f.unit),
               with_unit(f.computed - f.printed, f.unit) + (f.follows() ? "" : " !"), f.formula});
    if (!f.follows())
      deviations += str("  ! ", f.section, ", ", f.quantity, ": ", f.deviates, ".\n");
    nlohmann::ordered_json row{{"section", f.section}, {"quantity", f.quantity}};
    row["formula"] = f.formula;
    row["unit"] = f.unit;
    row["printed"] = f.printed;
    row["computed"] = f.computed;
    row["follows"] = f.follows();
    if (!f.deviates.empty()) row["deviates"] = f.deviates;
    rows.push_back(row);
  }
  section.text =
      str("The ZeRO paper's figures (Rajbhandari et al. 2020, arXiv:1910.02054v3). Ψ parameters, N "
          "ranks, L layers\nof width C, B sequences of T tokens; GB = 1e9 bytes, B = 1e9.\n\n",
          table.text(), "\nWhere the paper's arithmetic does not follow:\n", deviations);
  section.json = rows.dump();
  return section;
}

}  // namespace zl::cli
