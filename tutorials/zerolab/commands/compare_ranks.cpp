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

constexpr int64_t kMostMicroBatches = 10'000;  // of a step, of all ranks

struct RanksOutcome {
  int ranks;
  int64_t accumulation;
  Comparison comparison;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Of the bits of all losses, gradient norms and final weights.
std::string hash_of(const StageOutcome& s) {
  if (s.out_of_memory) return "";
  std::string bytes = bytes_of(s.weights_hash);
  for (const StepRecord& step : s.steps) bytes += bytes_of(step.loss) + bytes_of(step.grad_norm);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", (unsigned long long)fnv1a(bytes));
  return text;
}

std::set<std::string> hashes(const std::vector<RanksOutcome>& outcomes) {
  std::set<std::string> all;
  for (const RanksOutcome& o : outcomes)
    for (const StageOutcome& s : o.comparison.stages)
      if (!s.out_of_memory) all.insert(hash_of(s));
  return all;
}

// N * A of every run: the least that all numbers of ranks, with the micro-batches that the settings
// give each of them, divide.
int64_t micro_batches_of_step(const std::vector<RunSetup>& setups) {
  int64_t all = 1;
  for (const RunSetup& setup : setups) {
    all = std::lcm(all, setup.spec.ranks * setup.spec.engine.accumulation);
    require_input(all <= kMostMicroBatches, "these numbers of ranks need ", all,
                  " micro-batches per step, the least that all of them divide; at most ",
                  kMostMicroBatches, " are run. Leave one of them out");
  }
  return all;
}

void require_possible(const CompareOptions& options) {
  require_input(!launched_rank(options),
                "--ranks with several numbers starts its ranks itself; "
                "run it without a launcher");
  for (const auto& [flag, value] : {std::pair{"--out", &options.out},
                                    {"--baseline", &options.baseline},
                                    {"--trace", &options.trace}})
    require_input(value->empty(), flag,
                  " takes the results of one number of ranks; give --ranks "
                  "one number, or leave ",
                  flag, " out");
}

std::string table(const std::vector<RanksOutcome>& outcomes) {
  TextTable table;
  std::vector<std::string> heading{"ranks × micro-batches"};
  for (const StageOutcome& s : outcomes[0].comparison.stages) heading.push_back(name(s.stage));
  table.row(heading);
  table.line();
  for (const RanksOutcome& o : outcomes) {
    std::vector<std::string> cells{str(o.ranks, " × ", o.accumulation)};
    for (const StageOutcome& s : o.comparison.stages)
      cells.push_back(s.out_of_memory ? "does not fit" : hash_of(s));
    table.row(cells);
  }
  return table.text();
}

std::string verdict(const std::vector<RanksOutcome>& outcomes) {
  const std::set<std::string> all = hashes(outcomes);
  std::string text;
  if (all.empty())
    text = "No stage fits its memory. Try a smaller model or a larger limit.\n";
  else if (all.size() == 1)
    text = str("One hash: ", *all.begin(),
               ". All losses, gradient norms and weights have the same "
               "bits in every stage that fits and for every number of ranks.\n");
  else
    text = str("CHECK FAILED: there are ", all.size(),
               " hashes, so the bits depend on the stage or "
               "on the number of ranks.\n");
  const std::string nonfinite = nonfinite_text(outcomes[0].comparison);
  if (!nonfinite.empty()) text = "CHECK FAILED: " + nonfinite + "\n";
  for (const RanksOutcome& o : outcomes)
    for (const StageOutcome& s : o.comparison.stages)
      if (!s.out_of_memory && !s.predictions_exact())
        text += str("CHECK FAILED: ", name(s.stage), " on ", plural(o.ranks, "rank"),
                    " differs from its prediction; compare it with --ranks ", o.ranks, ".\n");
  return text;
}

std::string json(const std::vector<RanksOutcome>& outcomes, const RunSetup& setup) {
  using Json = nlohmann::ordered_json;
  const std::set<std::string> all = hashes(outcomes);
  Json runs = Json::array();
  for (const RanksOutcome& o : outcomes) {
    Json stages = Json::array();
    for (const StageOutcome& s : o.comparison.stages)
      stages.push_back({{"stage", name(s.stage)},
                        {"hash", s.out_of_memory ? Json(nullptr) : Json(hash_of(s))},
                        {"predictions_exact", !s.out_of_memory && s.predictions_exact()}});
    runs.push_back(
        {{"ranks", o.ranks}, {"gradient_accumulation_steps", o.accumulation}, {"stages", stages}});
  }
  const Json document{{"schema", 1},
                      {"version", kVersion},
                      {"model", setup.model.name},
                      {"steps", setup.spec.steps},
                      {"micro_batches_per_step", outcomes[0].ranks * outcomes[0].accumulation},
                      {"runs", runs},
                      {"hash", all.size() == 1 ? Json(*all.begin()) : Json(nullptr)}};
  return json_text(document);
}

}  // namespace

int compare_ranks(const CompareOptions& options) {
  require_possible(options);
  std::vector<RunSetup> setups;
  for (const int ranks : options.several_ranks) {
    CompareOptions one = options;
    one.ranks = ranks;
    one.quiet = options.quiet || !setups.empty();  // the same notes once
    setups.push_back(set_up_run(one, ranks));
    const int64_t B = setups.back().config.micro_batch;
    require_input(B == setups[0].config.micro_batch, "the same micro-batches on every number of ",
                  "ranks need one size: it is ", setups[0].config.micro_batch, " on ",
                  plural(setups[0].spec.ranks, "rank"), " and ", B, " on ", ranks,
                  "; set train_micro_batch_size_per_gpu, not train_batch_size");
  }
  require_input(setups[0].spec.engine.reproducible,
                "several numbers of ranks have the same bits in reproducible mode only; add "
                "--reproducible");
  const int64_t all = micro_batches_of_step(setups);
  std::vector<RanksOutcome> outcomes;
  for (RunSetup& setup : setups) {
    setup.config.accumulation = setup.spec.engine.accumulation = all / setup.spec.ranks;
    GptTrainingSpec machine = setup.spec;
    machine.host_memory = 0;  // a stage beyond that limit is reported, not refused
    require_memory(machine, setup, options.stages);
    if (!options.quiet)
      std::fputs(
          (outcomes.empty() ? describe(setup, options.stages)
                            : str("the same micro-batches on ", plural(setup.spec.ranks, "rank"),
                                  ", ", setup.spec.engine.accumulation, " for each\n"))
              .c_str(),
          stderr);
    RanksOutcome outcome{setup.spec.ranks, setup.spec.engine.accumulation, {}};
    try {
      outcome.comparison = run_stages(options, setup);
    } catch (const InterruptedRun& e) {
      throw InterruptedRun(e.text + "; nothing was written");
    }
    outcomes.push_back(std::move(outcome));
  }
  const std::string text =
      options.json ? json(outcomes, setups[0]) : table(outcomes) + "\n" + verdict(outcomes);
  std::fputs(printable(text).c_str(), stdout);
  const std::set<std::string> found = hashes(outcomes);
  if (found.empty()) return kOutOfMemory;
  const bool ok = found.size() == 1 && std::ranges::all_of(outcomes, [](const RanksOutcome& o) {
                    return o.comparison.ok() || !o.comparison.any_fits();
                  });
  return ok ? kFine : kFailed;
}

}  // namespace zl::cli
