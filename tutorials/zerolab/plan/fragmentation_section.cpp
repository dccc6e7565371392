#include <nlohmann/json.hpp>

#include "stages/predict/plan.h"
#include "stages/residual/fragmentation.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/plan_sections.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(const ArenaUse& use) { return format("%.2f %%", 100 * use.overhead()); }

Json arena(const ArenaUse& use) {
  return {{"high_water_bytes", use.high_water}, {"peak_live_bytes", use.peak_live}};
}

}  // namespace

PlanSection fragmentation_section(const TrainingSpec& spec, const std::vector<StageKind>& stages) {
  PlanSection section;
  section.key = "fragmentation";
  TextTable table;
  table.row({"bytes of rank 0", "peak live", "one arena", "overhead", "chunks: activations",
             "gradients", "the rest", "together"});
  Json rows = Json::array();
  for (const StageKind stage : stages) {
    const std::vector<ChunkEvent> events = block_events(with_stage(spec, stage), 0);
    for (const Fit fit : {Fit::first, Fit::best}) {
      const Fragmentation f = fragmentation(events, fit);
      table.row({str(name(stage), ", ", name(fit)), with_commas(f.together.peak_live),
                 with_commas(f.together.high_water), percent(f.together),
                 with_commas(f.kept.high_water), with_commas(f.gradient.high_water),
                 with_commas(f.rest.high_water), with_commas(f.apart())});
      Json row{{"stage", name(stage)}, {"fit", name(fit)}};
      row["one_arena"] = arena(f.together);
      row["overhead"] = f.together.overhead();
      row["chunk_of_kept_activations"] = arena(f.kept);
      row["chunk_of_gradients"] = arena(f.gradient);
      row["rest"] = arena(f.rest);
      row["chunks_total_bytes"] = f.apart();
      rows.push_back(row);
    }
  }
  section.text = str(
      "Fragmentation, M_D (section 6.3 of the ZeRO paper): every allocation and release of the "
      "device pool,\nfrom the start to the end of three steps, in one arena without rounding. "
      "Overhead: the arena beyond\nwhat is live at its peak. With chunks, activations that wait "
      "for backward and gradients have arenas\napart; each is allocated in advance at its own "
      "peak, so together they may be larger.\n\n",
      table.text());
  section.json = rows.dump();
  return section;
}

}  // namespace zl::cli
