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

// What the document says of a stage on so many ranks. `peak`: [FLOP/s] of one place.
Json measured(StageKind stage, int ranks, const StepOptions& options, const RunSetup& setup,
              double peak) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = stage;
  spec.ranks = ranks;
  Json row{{"stage", name(stage)}, {"ranks", ranks}};
  try {
    require_memory(spec, setup, {stage});
    const TrainingResult result = run_training(spec);
    std::vector<double> steps;  // [s]
    for (const StepRecord& step : result.steps)
      if (step.step > options.warm_up) steps.push_back(step.seconds);
    std::vector<int64_t> peaks;
    for (const RankReport& rank : result.ranks)
      peaks.push_back(rank.rest.peak_total() + rank.host.peak_total());
    const Spread seconds = spread_of(std::move(steps));
    const double tokens = double(result.steps.back().tokens),
                 operations = tokens * operations_per_token(spec.model, spec.window);
    const int places = setup.device.places(ranks);
    row.update({{"tokens_per_step", tokens},
                {"peak_total_bytes", peaks},
                {"operations_per_step", operations},
                {"seconds_per_step", seconds},
                {"tokens_per_second", tokens / seconds.median},
                {"places", places},
                {"share_of_peak", operations / seconds.median / (peak * places)}});
  } catch (const OutOfMemory& e) {
    row["out_of_memory"] = e.what();
  }
  return row;
}

int bench_step(StepOptions options) {
  options.set("--steps", "zerolab.steps", std::to_string(options.warm_up + options.timed), false);
  const RunSetup setup = set_up_run(options, kStepRanks);
  const GptTrainingSpec& spec = setup.spec;
  std::vector<std::pair<StageKind, int>> rows = {{StageKind::ddp, 1}};  // with the number of ranks
  if (spec.ranks > 1) rows.push_back({StageKind::ddp, spec.ranks});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.push_back({stage, spec.ranks});
  Progress progress(1 + std::ssize(rows), options.quiet);
  progress.item("peak FLOP/s");
  const double peak = operation_rate(setup.device, spec.engine.precision);
  Json results = Json::array(), ddp;  // the time of ddp on all ranks
  for (const auto& [stage, ranks] : rows) {
    progress.item(str(name(stage), " on ", plural(ranks, "rank")));
    Json& row = results.emplace_back(measured(stage, ranks, options, setup, peak));
    const Json time = row.value(Json::json_pointer("/seconds_per_step/median"), Json());
    if (stage == StageKind::ddp && ranks == spec.ranks) ddp = time;
    if (!time.is_null()) row["time_relative_to_ddp"] = nullptr;
    if (!time.is_null() && !ddp.is_null())
      row["time_relative_to_ddp"] = time.get<double>() / ddp.get<double>();
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
each listed stage. Each rank has its own micro-batch, so more ranks do more work. "to ddp" is the
cost of a stage; on a machine with other load take more steps, and run it again. Memory is the
largest peak of a rank, with the host's. "of peak" is model FLOPs utilisation: 6 operations per
parameter and token plus attention, relative to the best rate measured on the device. On a GPU a
small model measures launches: take --model gpt2.

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
            "steps before them (default 2)");
  add_shared_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
