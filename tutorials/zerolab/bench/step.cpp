// zerolab bench step: a training step on one rank, then on several under each stage.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepRanks = 4;

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  int64_t timed = 10, warm_up = 2;  // steps of a row; steps before them
};

// 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
// arXiv:2001.08361, section 2.1), plus attention: 14 per channel and pair of a token and one that
// it sees, 4 in forward and 10 in backward. What activation checkpointing repeats does not count.
double operations_per_token(const GptConfig& model, int64_t window) {
  return 6.0 * double(model.parameters()) + 7.0 * double(model.layers * model.width * (window + 1));
}

// Rows take turns: other load, which comes and goes, then changes their ratio less.
constexpr int64_t kRounds = 3;

struct StepRow {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  Json json = {{"stage", name(stage)}, {"ranks", ranks}};
  std::vector<double> seconds = {}, medians = {};  // of all timed steps; of each round
};

// `steps` timed ones after the warm-up, unless the row does not fit.
void run_round(StepRow& row, const StepOptions& options, const RunSetup& setup, int64_t steps) {
  if (row.json.contains("out_of_memory")) return;
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = row.stage;
  spec.ranks = row.ranks;
  spec.steps = options.warm_up + steps;
  try {
    if (row.seconds.empty()) require_memory(spec, setup, {row.stage});
    const TrainingResult result = run_training(spec);
    std::vector<double> round;
    for (const StepRecord& step : result.steps)
      if (step.step > options.warm_up) round.push_back(step.seconds);
    row.seconds.insert(row.seconds.end(), round.begin(), round.end());
    row.medians.push_back(spread_of(std::move(round)).median);
    row.json["tokens_per_step"] = result.steps.back().tokens;
    Json& peaks = row.json["peak_total_bytes"] = Json::array();
    for (const RankReport& rank : result.ranks)
      peaks.push_back(rank.rest.peak_total() + rank.host.peak_total());
  } catch (const OutOfMemory& e) {
    row.json["out_of_memory"] = e.what();
  }
}

// `peak`: [FLOP/s] of one place. `ddp`: the row of as many ranks.
void add_times(StepRow& row, const StepRow& ddp, const RunSetup& setup, double peak) {
  if (row.json.contains("out_of_memory")) return;
  const Spread seconds = spread_of(row.seconds);
  const double tokens = row.json["tokens_per_step"],
               operations = tokens * operations_per_token(setup.spec.model, setup.spec.window);
  const int places = setup.device.places(row.ranks);
  row.json.update({{"micro_batch", setup.spec.micro_batch},
                   {"window", setup.spec.window},
                   {"parameters", setup.spec.model.parameters()},
                   {"operations_per_step", operations},
                   {"seconds_per_step", seconds},
                   {"tokens_per_second", tokens / seconds.median},
                   {"places", places},
                   {"share_of_peak", operations / seconds.median / (peak * places)},
                   {"time_relative_to_ddp", nullptr}});
  if (ddp.ranks != row.ranks || ddp.medians.size() != row.medians.size()) return;
  std::vector<double> ratios;
  for (size_t i = 0; i < row.medians.size(); ++i) ratios.push_back(row.medians[i] / ddp.medians[i]);
  const Spread ratio = spread_of(std::move(ratios));
  row.json["time_relative_to_ddp"] = ratio.median;
  row.json["time_relative_to_ddp_range"] = {{"min", ratio.min}, {"max", ratio.max}};
}

int bench_step(StepOptions options) {
  const int64_t rounds = std::min(kRounds, options.timed);
  options.set("--steps", "zerolab.steps", std::to_string(options.warm_up + options.timed), false);
  const RunSetup setup = set_up_run(options, kStepRanks);
  const GptTrainingSpec& spec = setup.spec;
  std::vector<StepRow> rows(1);
  if (spec.ranks > 1) rows.push_back({.ranks = spec.ranks});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.push_back({.stage = stage, .ranks = spec.ranks});
  Progress progress(1 + rounds * std::ssize(rows), options.quiet);
  progress.item("peak FLOP/s");
  const double peak = operation_rate(setup.device, spec.engine.precision);
  for (int64_t round = 0; round < rounds; ++round)
    for (StepRow& row : rows) {
      progress.item(str(name(row.stage), " on ", plural(row.ranks, "rank")));
      run_round(row, options, setup, options.timed / rounds + (round < options.timed % rounds));
    }
  Json results = Json::array();
  for (StepRow& row : rows) {
    add_times(row, rows[spec.ranks > 1], setup, peak);
    results.push_back(row.json);
  }
  progress.clear();
  Json report = document<Json>("bench step", setup.device, 2);
  report.update({{"model", setup.model.name},
                 {"parameters", spec.model.parameters()},
                 {"precision", precision_name(spec.engine.precision)},
                 {"micro_batch", spec.micro_batch},
                 {"accumulation", spec.engine.accumulation},
                 {"window", spec.window},
                 {"steps", options.timed},
                 {"warm_up", options.warm_up},
                 {"operations_per_second", peak},
                 {"results", results}});
  print_results(report, options.json, "results",
                {{"stage", "/stage", as_is},
                 {"ranks", "/ranks", as_is},
                 {"median", "/seconds_per_step/median", as_seconds},
                 {"min", "/seconds_per_step/min", as_seconds},
                 {"max", "/seconds_per_step/max", as_seconds},
                 {"tokens/s", "/tokens_per_second", [](const Json& n) { return short_number(n); }},
                 {"to ddp", "/time_relative_to_ddp",
                  [](const Json& ratio) { return "× " + digits(ratio, 3); }},
                 {"of peak", "/share_of_peak", as_percent},
                 {"memory", "/peak_total_bytes",
                  [](const Json& ranks) { return as_bytes(*std::ranges::max_element(ranks)); }}});
  bool any = false;
  for (const Json& row : results)
    if (any |= !row.contains("out_of_memory"); row.contains("out_of_memory") && !options.json)
      std::printf("%s with %s: %s\n", as_is(row["stage"]).c_str(),
                  plural(row["ranks"], "rank").c_str(), as_is(row["out_of_memory"]).c_str());
  return any ? kFine : kOutOfMemory;
}

constexpr const char* kStepFooter =
    R"(Rows: one rank, which communicates nothing; --ranks under ddp, which always runs, and under
each listed stage. Each rank has its own micro-batch, so more ranks do more work. Rows take turns,
three each, so that other load affects all alike; "to ddp" (the cost of a stage) is the median of
their ratios. Memory is the largest peak of a rank, with the host's. "of peak" is model FLOPs
utilisation: 6 operations per parameter and token plus attention, relative to the best rate measured
on the device. On a GPU a small model measures launches: take --model gpt2.

  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20

Exit codes: 0 fine, 2 usage or configuration, 3 nothing fits, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_step(CLI::App& bench, Invocation& invocation) {
  static StepOptions options;
  Flags flags(bench, invocation, "step",
              "time of a training step, on one rank and under each stage",
              [] { return bench_step(options); });
  flags.group("What");
  add_stages_flag(flags, options.stages);
  flags.add("--steps", "N", options.timed, count_within(1, 100'000),
            "timed steps of each row (default 10)");
  flags.add("--warm-up", "N", options.warm_up, count_within(0, 100'000),
            "steps before them, in each of three turns (default 2)");
  add_shared_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
