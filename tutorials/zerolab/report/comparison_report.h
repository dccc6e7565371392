// The reports of compare and plan: a JSON document, and a table for people that is made from it.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/preset_forms.h"
#include "stages/train/comparison.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

// compare --baseline: a stored compare.json whose results those of this run must equal.
class Baseline {
 public:
  // Throws InputError if `path` is not a document of compare in schema 1, or is of a run with
  // another setting, which it names. `settings` is the document of this run without results.
  // Settings that only one of them has are not compared.
  Baseline(std::string path, const std::string& settings);
  // The first result in `stages`, those of the document, that differs, in one sentence; "" if none
  // does. Results are losses, gradient norms, hashes of weights, memory and traffic; times are not
  // compared.
  std::string first_difference(const std::string& stages) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_, stages_;
};
// The document without results: what is known before the run.
std::string comparison_settings(const RunSetup& setup, const std::vector<StageKind>& listed);

struct ComparisonReport {
  std::string text, json;
  bool ok;  // the comparison is, and the baseline, if there is one, is equal
};
// `presets`: predicted beside the stages. `baseline`: null if there is none.
ComparisonReport comparison_report(const RunSetup& setup, const Comparison& comparison,
                                   const std::vector<PresetPlan>& presets,
                                   const Baseline* baseline);

struct PlanReport {
  std::string text, json;
  bool fits;  // one of the stages
};
PlanReport plan_report(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                       const GptTrainingSpec& spec, const std::string& head);
// "16 bytes per parameter = parameter 4 + gradient 4 + optimizer 8", without sharding.
std::string bytes_per_parameter(const Options& options);
// What begins its text: the run, and what its model states take in all.
std::string plan_head(const GptTrainingSpec& spec, const std::string& model, Recompute recompute);
// Which stage to take: the first that fits, because later ones keep less; or that none fits, and
// what to try.
std::string plan_advice(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec);

// plan --parameters: the paper's closed formulas for model states (Rajbhandari et al. 2020,
// arXiv:1910.02054, figure 1 and table 1), of any number of parameters and without a model.
PlanReport model_states_report(double parameters, int ranks, const Options& options,
                               const std::vector<StageKind>& stages, int64_t device_memory);

// The presets without doubles, with that of the configuration, and what they keep and send.
std::vector<PresetPlan> predict_presets(std::vector<const Preset*> presets, const Config& config,
                                        const TrainingSpec& spec);
// That, and how they differ from the paper's stage; "" without any.
std::string preset_text(const std::vector<PresetPlan>& presets);

}  // namespace zl::cli
