// zerolab compare --reproducible --ranks 1,2,3,4,6: the same micro-batches on several numbers of
// ranks.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tensor/random.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/commands/compare.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/preflight.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostMicroBatches = 10'000;  // of a step, of all ranks

// What is printed of each number of ranks and stage, and what they have together.
struct Outcomes {
  Json runs = Json::array();
  TextTable table;
  std::set<std::string> hashes;
  std::string nonfinite, inexact;  // sentences about failed checks; "": none
  bool ok = true;                  // of each comparison in which a stage fits
};

// Of the bits of all losses, gradient norms and final weights.
std::string hash_of(const StageOutcome& s) {
  std::string bytes;
  const auto add = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(s.weights_hash);
  for (const StepRecord& step : s.steps) add(step.loss), add(step.grad_norm);
  return format("%016llx", (unsigned long long)fnv1a(bytes));
}

void add(Outcomes& all, const GptTrainingSpec& spec, const Comparison& comparison) {
  Json stages = Json::array();
  std::vector<std::string> heading{"ranks × micro-batches"},
      cells{str(spec.ranks, " × ", spec.engine.accumulation)};
  for (const StageOutcome& s : comparison.stages) {
    const bool fits = !s.out_of_memory, exact = fits && s.predictions_exact();
    const std::string hash = fits ? hash_of(s) : "";
    if (fits) all.hashes.insert(hash);
    if (fits && !exact)
      all.inexact +=
          str("CHECK FAILED: ", name(s.stage), " on ", plural(spec.ranks, "rank"),
              " differs from its prediction; compare it with --ranks ", spec.ranks, ".\n");
    heading.push_back(name(s.stage));
    cells.push_back(fits ? hash : "does not fit");
    stages.push_back({{"stage", name(s.stage)},
                      {"hash", fits ? Json(hash) : Json(nullptr)},
                      {"predictions_exact", exact}});
  }
  if (all.runs.empty()) {
    all.nonfinite = nonfinite_text(comparison);
    all.table.row(heading);
    all.table.line();
  }
  all.table.row(cells);
  all.runs.push_back({{"ranks", spec.ranks},
                      {"gradient_accumulation_steps", spec.engine.accumulation},
                      {"stages", stages}});
  all.ok &= comparison.ok() || !comparison.any_fits();
}

std::string verdict(const Outcomes& all) {
  const std::string equality =
      all.hashes.empty() ? "No stage fits its memory. Try a smaller model or a larger limit.\n"
      : all.hashes.size() > 1
          ? str("CHECK FAILED: there are ", all.hashes.size(),
                " hashes, so the bits depend on the stage or on the number of ranks.\n")
          : str("One hash: ", *all.hashes.begin(),
                ". All losses, gradient norms and weights have the same bits in every stage that "
                "fits and for every number of ranks.\n");
  return (all.nonfinite.empty() ? equality : "CHECK FAILED: " + all.nonfinite + "\n") + all.inexact;
}

// One run for each number of ranks, with N * A micro-batches in all of them: the least that all
// numbers of ranks, with the micro-batches that the settings give each of them, divide.
std::vector<RunSetup> set_up_runs(CompareOptions options) {
  std::vector<RunSetup> setups;
  int64_t all = 1;
  for (const int ranks : options.several_ranks) {
    options.ranks = ranks;
    setups.push_back(set_up_run(options, ranks));
    options.quiet = true;  // the same notes once
    const int64_t first = setups[0].config.micro_batch, B = setups.back().config.micro_batch;
    require_input(B == first, "the same micro-batches on every number of ranks need one size: it ",
                  "is ", first, " on ", plural(setups[0].spec.ranks, "rank"), " and ", B, " on ",
                  ranks, "; set train_micro_batch_size_per_gpu, not train_batch_size");
    all = std::lcm(all, ranks * setups.back().spec.engine.accumulation);
    require_input(all <= kMostMicroBatches, "these numbers of ranks need ", all,
                  " micro-batches per step, the least that all of them divide; at most ",
                  kMostMicroBatches, " are run. Leave one of them out");
  }
  require_input(setups[0].spec.engine.reproducible,
                "several numbers of ranks have the same bits in reproducible mode only; add "
                "--reproducible");
  for (RunSetup& setup : setups)
    setup.config.accumulation = setup.spec.engine.accumulation = all / setup.spec.ranks;
  return setups;
}

}  // namespace

int compare_ranks(CompareOptions options) {
  require_input(!launched_rank(options),
                "--ranks with several numbers starts its ranks itself; run it without a launcher");
  for (const auto& [flag, value] : {std::pair{"--out", &options.out},
                                    {"--baseline", &options.baseline},
                                    {"--trace", &options.trace}})
    require_input(value->empty(), flag,
                  " takes the results of one number of ranks; give --ranks one number, or leave ",
                  flag, " out");
  const std::vector<RunSetup> setups = set_up_runs(options);
  const GptTrainingSpec& first = setups[0].spec;
  Outcomes all;
  for (const RunSetup& setup : setups) {
    require_memory(setup.spec, setup, options.stages);
    const std::string text =
        all.runs.empty() ? describe(setup, options.stages)
                         : str("the same micro-batches on ", plural(setup.spec.ranks, "rank"), ", ",
                               setup.spec.engine.accumulation, " for each\n");
    if (!options.quiet) std::fputs(text.c_str(), stderr);
    add(all, setup.spec, run_stages(options, setup));
  }
  const bool one = all.hashes.size() == 1;
  const Json document{{"schema", 1},
                      {"version", kVersion},
                      {"model", setups[0].model.name},
                      {"steps", first.steps},
                      {"micro_batches_per_step", first.ranks * first.engine.accumulation},
                      {"runs", all.runs},
                      {"hash", one ? Json(*all.hashes.begin()) : Json(nullptr)}};
  std::fputs(printable(options.json ? json_text(document) : all.table.text() + "\n" + verdict(all))
                 .c_str(),
             stdout);
  return all.hashes.empty() ? kOutOfMemory : one && all.ok ? kFine : kFailed;
}

}  // namespace zl::cli
