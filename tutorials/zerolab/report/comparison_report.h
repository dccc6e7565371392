// The reports of compare and plan: a table for people, a JSON document, a page with pictures.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stages/train/comparison.h"
#include "tutorials/zerolab/run/run_setup.h"
#include "tutorials/zerolab/run/stage_meter.h"

namespace zl::cli {

struct ComparisonReport {
  const RunSetup& setup;
  const Comparison& comparison;
  std::map<StageKind, MemoryByUse> at_peak;   // of the stages that ran
  std::string baseline, baseline_difference;  // --baseline; the first difference, "" if none
  std::string timelines;                      // as StepTimeline::text(), of all stages
};

std::string comparison_text(const ComparisonReport& report);
std::string comparison_json(const ComparisonReport& report);
// The document without results: what is known before the run.
std::string comparison_settings(const RunSetup& setup, const std::vector<StageKind>& listed);
// A page without external resources: memory and traffic of each stage, losses, the machine.
std::string comparison_html(const ComparisonReport& report);

std::string plan_text(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec,
                      const std::string& model);
std::string plan_json(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec);

}  // namespace zl::cli
