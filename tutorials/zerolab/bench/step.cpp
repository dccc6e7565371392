// zerolab bench step: a training step on one rank, then on several under each stage. Every round
// runs each row for some steps.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepRanks = 4;

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  int64_t micro_batch = 0;          // 0: of the settings
  int64_t timed = 10, warm_up = 2;  // steps of a row, over all rounds; steps before them per round
  int64_t rounds = 3;               // at most `timed`
};

// One rank, or the ranks of a stage.
struct StepRow {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  std::vector<std::vector<double>> rounds{};  // [s] of each timed step
  Json json{};                                // what the document says of it
  bool ran() const { return !json.contains("out_of_memory"); }
};

RunSetup set_up(StepOptions options) {
  options.set("--steps", "zerolab.steps", std::to_string(options.timed + options.warm_up), false);
  const bool names_model = options.given("--model") || options.n_layer || options.n_head ||
                           options.n_embd || options.block_size || options.vocab_size ||
                           !options.init_from.empty() || !options.source.file.empty();
  // On a GPU the default model is too small: it would measure the time of kernel launches.
  if (!names_model && choose_device({.device = options.device}, Dtype::f32, 1).on_gpus())
    options.set("--model", "zerolab.model", "gpt2");
  RunSetup setup = set_up_run(options, kStepRanks);
  if (options.micro_batch > 0) setup.spec.micro_batch = options.micro_batch;
  return setup;
}

// `warm_up` steps, then `timed` steps.
void run_round(StepRow& row, const RunSetup& setup, int64_t warm_up, int64_t timed,
               Progress& progress) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = row.stage;
  spec.steps = warm_up + timed;
  spec.ranks = row.ranks;
  progress.item(str(as_is(row.json["stage"]), " on ", plural(row.ranks, "rank"), ", ",
                    plural(spec.steps, "step")));
  if (row.rounds.empty()) require_memory(spec, setup, {row.stage});
  const TrainingResult result = run_training(spec);
  std::vector<int64_t> peaks;
  for (const RankReport& rank : result.ranks)
    peaks.push_back(rank.rest.peak_total() + rank.host.peak_total());
  std::vector<double>& round = row.rounds.emplace_back();
  for (size_t i = size_t(warm_up); i < result.steps.size(); ++i)
    round.push_back(result.steps[i].seconds);
  row.json["tokens_per_step"] = result.steps.back().tokens;
  row.json["peak_total_bytes"] = peaks;
}

// 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
// arXiv:2001.08361, section 2.1), plus attention: 14 per channel and pair of a token and one that
// it sees, 4 in forward and 10 in backward. What activation checkpointing repeats does not count.
double operations_per_token(const GptConfig& model, int64_t window) {
  return 6.0 * double(model.parameters()) + 7.0 * double(model.layers * model.width * (window + 1));
}

// `ddp`: on as many ranks.
void add_ratio(StepRow& row, const StepRow& ddp) {
  constexpr const char *key = "time_relative_to_ddp", *range = "time_relative_to_ddp_range";
  row.json[key] = row.json[range] = nullptr;
  if (ddp.ranks != row.ranks || !ddp.ran()) return;
  std::vector<double> ratios;  // of each round's medians
  for (size_t i = 0; i < row.rounds.size(); ++i)
    ratios.push_back(spread_of(row.rounds[i]).median / spread_of(ddp.rounds[i]).median);
  const Spread ratio = spread_of(std::move(ratios));
  row.json[key] = ratio.median;
  row.json[range] = {{"min", ratio.min}, {"max", ratio.max}};
}

// `rate`: [FLOP/s] of one place.
void add_times(StepRow& row, const GptTrainingSpec& spec, int places, double rate) {
  std::vector<double> steps;
  for (const auto& round : row.rounds) steps.insert(steps.end(), round.begin(), round.end());
  const Spread seconds = spread_of(std::move(steps));
  const double tokens = row.json["tokens_per_step"],
               operations = tokens * operations_per_token(spec.model, spec.window);
  row.json.update({{"operations_per_step", operations},
                   {"seconds_per_step", seconds},
                   {"tokens_per_second", tokens / seconds.median},
                   {"places", places},
                   {"share_of_peak", operations / seconds.median / (rate * places)}});
}

// "results": measures every row once per round, and adds the device's best `peak` [FLOP/s], of a
// GPU or of a core for each thread of a rank.
Json measure_rows(const StepOptions& options, const RunSetup& setup, double& peak) {
  const int ranks = setup.spec.ranks;
  std::vector<StepRow> rows(1);
  if (ranks > 1) rows.push_back({.ranks = ranks});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.push_back({.stage = stage, .ranks = ranks});
  for (StepRow& row : rows)
    row.json = {{"stage", name(row.stage)},
                {"ranks", row.ranks},
                {"micro_batch", setup.spec.micro_batch},
                {"window", setup.spec.window},
                {"parameters", setup.spec.model.parameters()}};
  const int64_t rounds = options.rounds;
  Progress progress(rounds * (1 + std::ssize(rows)), options.quiet);
  for (int64_t round = 0; round < rounds; ++round) {
    progress.item("peak FLOP/s");
    peak = std::max(peak, operation_rate(setup.device, setup.spec.engine.precision));
    const int64_t timed = options.timed / rounds + (round < options.timed % rounds);
    for (StepRow& row : rows) try {
        if (row.ran()) run_round(row, setup, options.warm_up, timed, progress);
      } catch (const OutOfMemory& e) {
        row.json["out_of_memory"] = e.what();
      }
  }
  progress.clear();
  Json results = Json::array();
  for (StepRow& row : rows) {
    if (row.ran()) {
      add_times(row, setup.spec, setup.device.places(row.ranks), peak);
      add_ratio(row, rows[ranks > 1]);
    }
    results.push_back(row.json);
  }
  return results;
}

int bench_step(StepOptions options) {
  options.rounds = std::min(options.rounds, options.timed);
  const RunSetup setup = set_up(options);
  const GptTrainingSpec& spec = setup.spec;
  double peak = 0;
  const Json results = measure_rows(options, setup, peak);
  Json report = document<Json>("bench step", setup.device, 2);
  report.update({{"model", setup.model.name},
                 {"parameters", spec.model.parameters()},
                 {"precision", precision_name(spec.engine.precision)},
                 {"micro_batch", spec.micro_batch},
                 {"accumulation", spec.engine.accumulation},
                 {"window", spec.window},
                 {"steps", options.timed},
                 {"warm_up", options.warm_up},
                 {"rounds", options.rounds},
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
each listed stage. Each rank has its own micro-batch, so more ranks do more work. Every row runs in
each of --rounds rounds, so that other load affects all rows alike; "to ddp" (the cost of a stage)
is the median of the rounds' ratios. Memory is the largest peak of a rank, with the host's.
"of peak" is model FLOPs utilisation: 6 operations per parameter and token plus attention, relative
to the best rate measured on the device.
The time in each kernel: 'zerolab bench kernels'.

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
            "steps before them, in each round (default 2)");
  flags.add("--rounds", "N", options.rounds, count_within(1, 100'000),
            "each runs every row for its part of --steps (default 3)");
  flags.add("--micro-batch", "B", options.micro_batch, count_within(1, 1 << 20),
            "sequences per rank (default 4, or --config's)");
  add_shared_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
