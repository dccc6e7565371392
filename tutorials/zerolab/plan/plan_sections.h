// What plan prints behind its table on request, and adds to its JSON document.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/deepspeed_estimates.h"
#include "stages/train/trainer.h"

namespace zl::cli {

struct PlanSection {
  std::string key;   // in the JSON document
  std::string text;  // for people
  std::string json;  // the value of `key`
};
void add_sections(const std::vector<PlanSection>& sections, std::string& text, std::string& json);

// Flags of plan, each for one section.
struct SectionOptions {
  bool estimate = false, fragmentation = false, paper = false;
};

// Adds the sections to the plan's text and document.
void add_sections(const SectionOptions& options, const std::vector<StageKind>& stages,
                  const TrainingSpec& spec, int ranks_per_node, std::string& text,
                  std::string& json);
// The same for a number of parameters without a model. Throws UsageError for a section that needs
// one.
void add_sections(const SectionOptions& options, const std::vector<StageKind>& stages,
                  const EstimateInput& parameters, std::string& text, std::string& json);

// --estimate: DeepSpeed's tables for those of `stages` that have one, with the exact numbers of
// `spec` beside them. Null: of a number of parameters, whose largest layer is unknown; then only
// stage 2 has a table. Throws UsageError if no stage has one.
PlanSection estimate_section(const std::vector<StageKind>& stages, const EstimateInput& input,
                             const TrainingSpec* spec);
// --fragmentation: the address space of one arena, and of arenas with chunks, for each stage.
PlanSection fragmentation_section(const TrainingSpec& spec, const std::vector<StageKind>& stages);
// --paper: what the ZeRO paper prints, and what its formulas give.
PlanSection paper_section();

}  // namespace zl::cli
