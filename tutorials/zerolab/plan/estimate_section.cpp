#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/plan/plan_sections.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string gib(int64_t bytes) { return format("%.3f", double(bytes) / (1 << 30)); }

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

const char* kWhyZero2 =
    R"(  * Sharded bytes per parameter. DeepSpeed: 18 = gradients 2 + 4 (in 16 and in 32 bits),
    master weights 4, moments 8. Here: 14 = 2 + 4 + 8, for there is no fp32 copy of the gradients.
  * At its peak. DeepSpeed counts no gradients that wait for their reduction. Here the full
    gradients of root and of one block exist during backward.
  * On the host. DeepSpeed takes 1.5, a margin, times 16 bytes per parameter, or times 4 bytes for
    each GPU if that is more: of all nodes with offload, of one node without. There each process
    first builds the model in fp32. Here a rank makes its shards in place, and only offload takes
    host memory: 14 bytes per parameter, divided among all ranks.
  * Padding: here each unit is a multiple of 16 elements for each rank; DeepSpeed counts none.
)";
const char* kWhyZero3 =
    R"(  * Sharded bytes per parameter. DeepSpeed: 18 = parameters 2, gradients 4 (in 32 bits),
    master weights 4, moments 8. Here: 16 = 2 + 2 + 4 + 8.
  * At its peak. DeepSpeed adds 4 bytes per parameter of its largest layer, one module: its full
    parameters and gradients. Here units are full: root, with embeddings and head, during a whole
    pass, and one block beside it.
  * On the host. DeepSpeed takes 1.5, a margin, times 16 bytes per parameter, 18 with
    offload_param, divided among the nodes. Without zero_init each process first builds the model
    in fp32: 4 bytes for each GPU of a node, if that is more. Without offload only this, with
    zero_init for the largest layer alone. Here a rank makes its shards in place, and only offload
    takes host memory: 14 bytes per parameter, 16 with offload_param, divided among all ranks.
  * Padding: here each unit is a multiple of 16 elements for each rank; DeepSpeed counts none.
)";

Json row_json(StageKind stage, const Estimate& e) {
  const auto device = [](bool cpu) { return cpu ? "cpu" : "none"; };
  Json row;
  if (stage == StageKind::zero3) row["offload_param"] = device(e.offload_param);
  row["offload_optimizer"] = device(e.offload_optimizer);
  if (stage == StageKind::zero3) row["zero_init"] = e.zero_init;
  row["estimated_bytes_per_cpu"] = e.node;
  row["estimated_bytes_per_gpu"] = e.rank;
  return row;
}

}  // namespace

PlanSection estimate_section(const std::vector<StageKind>& stages, const EstimateInput& input,
                             const TrainingSpec* spec) {
  PlanSection section;
  section.key = "estimate";
  Json json{{"parameters", input.parameters},
            {"nodes", input.nodes},
            {"gpus_per_node", input.ranks_per_node}};
  if (spec) json["largest_layer_parameters"] = input.largest_layer;
  json["stages"] = Json::array();
  for (const StageKind stage : {StageKind::zero2, StageKind::zero3}) {
    if (std::ranges::find(stages, stage) == stages.end()) continue;
    if (!spec && stage == StageKind::zero3) {
      section.text += "zero3: DeepSpeed's estimate asks for the largest layer; name a model.\n";
      continue;
    }
    section.text += str("DeepSpeed's estimate_", name(stage), "_model_states_mem_needs_all_live()",
                        spec ? ", and the exact bytes here in bf16" : "", ":\n\n",
                        deepspeed_heading(stage, input));
    const std::vector<Estimate> rows = deepspeed_estimates(stage, input);
    size_t width = deepspeed_titles().size();
    for (const Estimate& e : rows) width = std::max(width, deepspeed_row(stage, e).size());
    section.text += padded(deepspeed_titles(), width);
    section.text += spec ? " | here: per CPU |  per GPU | at its peak\n" : "\n";
    Json table = Json::array();
    for (const Estimate& e : rows) {
      Json row = row_json(stage, e);
      section.text += padded(deepspeed_row(stage, e), width);
      if (spec) {
        const ExactStates s = exact_states(*spec, stage, e, input.ranks_per_node);
        section.text += format(" | %12sGB | %6sGB | %9sGB", gib(s.node).c_str(),
                               gib(s.rest).c_str(), gib(s.peak).c_str());
        row["exact_bytes_per_cpu"] = s.node;
        row["exact_rest_bytes_per_gpu"] = s.rest;
        row["exact_peak_bytes_per_gpu"] = s.peak;
      }
      section.text += "\n";
      table.push_back(row);
    }
    section.text += str("\nWhy they differ (GB are 2^30 bytes, as DeepSpeed's):\n",
                        stage == StageKind::zero3 ? kWhyZero3 : kWhyZero2, "\n");
    json["stages"].push_back({{"stage", name(stage)}, {"rows", table}});
  }
  if (section.text.empty())
    throw UsageError(
        "DeepSpeed estimates stages 2 and 3; add zero2 or zero3 to --stages, or leave "
        "out --estimate");
  section.json = json.dump();
  return section;
}

}  // namespace zl::cli
