// What compare and plan say: a table for people, one JSON document, a page with pictures.
#pragma once

#include <string>
#include <vector>

#include "stages/train/comparison.h"

namespace zl::cli {

std::string comparison_text(const Comparison& comparison, const TrainingSpec& spec);
std::string comparison_json(const Comparison& comparison, const TrainingSpec& spec);
// A page that needs nothing but itself: one stacked bar of memory per stage, one plot of losses.
std::string comparison_html(const Comparison& comparison, const TrainingSpec& spec);

std::string plan_text(const std::vector<StagePlan>& plans, const TrainingSpec& spec,
                      const std::string& model);
std::string plan_json(const std::vector<StagePlan>& plans, const TrainingSpec& spec);

}  // namespace zl::cli
