#include "tutorials/zerolab/plan/plan_sections.h"

#include <nlohmann/json.hpp>

#include "stages/predict/plan.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/json_output.h"

namespace zl::cli {

void add_sections(const std::vector<PlanSection>& sections, std::string& text, std::string& json) {
  if (sections.empty()) return;
  auto document = nlohmann::ordered_json::parse(json);
  for (const PlanSection& s : sections) {
    text += "\n" + s.text;
    document[s.key] = nlohmann::ordered_json::parse(s.json);
  }
  json = json_text(document);
}

void add_sections(const SectionOptions& options, const std::vector<StageKind>& stages,
                  const TrainingSpec& spec, int ranks_per_node, std::string& text,
                  std::string& json) {
  std::vector<PlanSection> sections;
  if (options.estimate) {
    const EstimateInput input = estimate_input(*spec.new_model(), spec.ranks, ranks_per_node);
    sections.push_back(estimate_section(stages, input, &spec));
  }
  if (options.fragmentation) sections.push_back(fragmentation_section(spec, stages));
  if (options.paper) sections.push_back(paper_section());
  add_sections(sections, text, json);
}

void add_sections(const SectionOptions& options, const std::vector<StageKind>& stages,
                  const EstimateInput& parameters, std::string& text, std::string& json) {
  if (options.fragmentation)
    throw UsageError(
        "--fragmentation needs a model; name one with --model instead of --parameters");
  std::vector<PlanSection> sections;
  if (options.estimate) sections.push_back(estimate_section(stages, parameters, nullptr));
  if (options.paper) sections.push_back(paper_section());
  add_sections(sections, text, json);
}

}  // namespace zl::cli
