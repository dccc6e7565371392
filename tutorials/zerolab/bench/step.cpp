// zerolab bench step: a training step on one rank, then on several, without communication and under
// each stage. Every round runs each row for some steps.

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/bench/timed_backend.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/preflight.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepRanks = 4;

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  int64_t micro_batch = 0;          // 0: of the settings
  int64_t timed = 10, warm_up = 2;  // steps of a row, over all rounds; steps before them per round
  int64_t rounds = 3;               // at most `timed`
  bool profile = false;
};

// One rank; independent runs of one rank at the same time; or the ranks of a stage.
struct StepRow {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  bool independent = false;
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

// [B] A line such as "VmHWM:   12345 kB"; 0 if there is none.
int64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (int64_t kib = 0; word == key + ":" && in >> kib) return kib * 1024;
  return 0;
}

// Returns memory of earlier runs to the system and restarts the peak VmHWM, proc(5). Returns [B]
// that the process holds now; 0 if the system cannot restart the peak.
int64_t restart_peak_resident() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  return reset.good() ? status_bytes("VmRSS") : 0;
}

// The same training on one rank, a thread of this process.
GptTrainingSpec one_rank(GptTrainingSpec spec) {
  spec.ranks = 1;
  spec.run_ranks = nullptr;
  spec.transport = Transport::threads;
  return spec;
}

using BeginStep = std::function<void(int64_t)>;  // called before each step

// One run of all ranks, or the `others` of independent ones, which start together, as do their
// timed steps.
TrainingResult run_one(const GptTrainingSpec& spec, int64_t warm_up, Communicator* others,
                       const BeginStep& begin_step) {
  int64_t steps = 0;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    if (training.comm().rank() > 0) return;
    if (others) others->all_gather_object("", "start");
    begin_step(0);
  };
  callbacks.on_step = [&](const StepRecord&) {
    if (++steps == warm_up && others) others->all_gather_object("", "warm");
    if (steps < spec.steps) begin_step(steps);
  };
  return run_training(spec, callbacks);
}

std::vector<TrainingResult> run_all(const StepRow& row, const GptTrainingSpec& spec,
                                    int64_t warm_up, const BeginStep& begin) {
  if (!row.independent) return {run_one(spec, warm_up, nullptr, begin)};
  std::vector<TrainingResult> runs(size_t(row.ranks));
  const auto body = [&](Communicator& all) {
    const BeginStep silent = [](int64_t) {};
    runs[size_t(all.rank())] =
        run_one(one_rank(spec), warm_up, &all, all.rank() == 0 ? begin : silent);
  };
  run_ranks(row.ranks, body, spec.rank_options);
  return runs;
}

// `warm_up` steps, then `timed` steps.
void run_round(StepRow& row, const RunSetup& setup, int64_t warm_up, int64_t timed,
               Progress& progress) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = row.stage;
  spec.steps = warm_up + timed;
  spec.ranks = row.ranks;
  const std::string what = str(as_is(row.json["stage"]), " on ", plural(row.ranks, "rank"));
  if (row.rounds.empty()) require_memory(spec, setup, {row.stage});
  const int64_t resident = restart_peak_resident();
  const auto runs =
      run_all(row, spec, warm_up, [&](int64_t i) { progress.item(str(what, ", step ", i + 1)); });
  const Json peak = status_bytes("VmHWM");
  if (resident > 0 && peak > row.json["peak_resident_bytes"])  // null is less than a number
    row.json["peak_resident_bytes"] = peak, row.json["resident_bytes_before"] = resident;
  int64_t tokens = 0;
  std::vector<int64_t> peaks;
  std::vector<double>& round = row.rounds.emplace_back();
  for (const TrainingResult& run : runs) {
    for (size_t i = size_t(warm_up); i < run.steps.size(); ++i)
      round.push_back(run.steps[i].seconds);
    tokens += run.steps.back().tokens;
    for (const RankReport& rank : run.ranks)
      peaks.push_back(rank.rest.peak_total() + rank.host.peak_total());
  }
  row.json["tokens_per_step"] = tokens;
  row.json["peak_total_bytes"] = peaks;
}

// 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
// arXiv:2001.08361, section 2.1), plus attention: 14 per channel and pair of a token and one that
// it sees, 4 in forward and 10 in backward. What activation checkpointing repeats does not count.
double operations_per_token(const GptConfig& model, int64_t window) {
  return 6.0 * double(model.parameters()) + 7.0 * double(model.layers * model.width * (window + 1));
}

// `base`: the row with ddp, or of independent ranks; null if there is none.
void add_ratio(StepRow& row, const std::string& key, const StepRow* base) {
  row.json[key] = row.json[key + "_range"] = nullptr;
  if (!base || base->ranks != row.ranks || !base->ran()) return;
  std::vector<double> ratios;  // of each round's medians
  for (size_t i = 0; i < row.rounds.size(); ++i)
    ratios.push_back(spread_of(row.rounds[i]).median / spread_of(base->rounds[i]).median);
  const Spread ratio = spread_of(std::move(ratios));
  row.json[key] = ratio.median;
  row.json[key + "_range"] = {{"min", ratio.min}, {"max", ratio.max}};
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
  const bool several = ranks > 1;
  std::vector<StepRow> rows(1);
  if (several) rows.insert(rows.end(), {{.ranks = ranks, .independent = true}, {.ranks = ranks}});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.push_back({.stage = stage, .ranks = ranks});
  for (StepRow& row : rows)
    row.json = {{"stage", row.independent ? "independent" : name(row.stage)},
                {"ranks", row.ranks},
                {"micro_batch", setup.spec.micro_batch},
                {"window", setup.spec.window},
                {"parameters", setup.spec.model.parameters()},
                {"peak_resident_bytes", nullptr},
                {"resident_bytes_before", nullptr}};
  Progress progress(
      options.rounds + std::ssize(rows) * (options.timed + options.rounds * options.warm_up),
      options.quiet);
  for (int64_t round = 0; round < options.rounds; ++round) {
    progress.item("peak FLOP/s");
    peak = std::max(peak, operation_rate(setup.device, setup.spec.engine.precision));
    const int64_t timed = options.timed / options.rounds + (round < options.timed % options.rounds);
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
      add_ratio(row, "time_relative_to_ddp", &rows[several ? 2 : 0]);
      add_ratio(row, "time_relative_to_independent", several ? &rows[1] : nullptr);
    }
    results.push_back(row.json);
  }
  return results;
}

// The time in each kernel and outside of all kernels: steps of ddp on one rank, which communicates
// nothing.
Json measure_profile(const StepOptions& options, const RunSetup& setup, double peak) {
  GptTrainingSpec spec = one_rank(setup.spec);
  spec.engine.stage = StageKind::ddp;
  spec.steps = options.warm_up + options.timed;
  Progress progress(spec.steps, options.quiet);
  const std::vector<TimedStep> steps = time_kernels(
      spec, TimedBy::device, options.warm_up, [&] { progress.item("step with timed kernels"); });
  progress.clear();
  std::vector<double> seconds, outside;  // of each step: [s], share outside of kernels
  for (const TimedStep& step : steps) {
    double inside = 0;
    for (const TimedKernel& call : step.calls) inside += call.seconds;
    seconds.push_back(step.seconds);
    outside.push_back(1 - inside / step.seconds);
  }
  const double copy = copy_rate(setup.device);
  return {{"stage", "ddp"},
          {"ranks", 1},
          {"steps", options.timed},
          {"seconds_per_step", spread_of(std::move(seconds))},
          {"share_outside_kernels", spread_of(std::move(outside))},
          {"copy_bytes_per_second", copy},
          {"kernels",
           Json::parse(kernel_rows(steps, precision_name(spec.engine.precision), copy, peak))}};
}

int bench_step(StepOptions options) {
  options.rounds = std::min(options.rounds, options.timed);
  const RunSetup setup = set_up(options);
  const GptTrainingSpec& spec = setup.spec;
  require_input(!options.profile || spec.engine.offload_optimizer == OffloadDevice::none,
                "--profile times kernels on the device; leave out offload_optimizer");
  double peak = 0;
  const Json results = measure_rows(options, setup, peak);
  const Json profile = options.profile ? measure_profile(options, setup, peak) : Json();
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
  if (options.profile && options.json) report["profile"] = profile;
  print_results(report, options.json, "results",
                {{"stage", "/stage", as_is},
                 {"ranks", "/ranks", as_is},
                 {"median", "/seconds_per_step/median", as_seconds},
                 {"min", "/seconds_per_step/min", as_seconds},
                 {"max", "/seconds_per_step/max", as_seconds},
                 {"tokens/s", "/tokens_per_second", [](const Json& n) { return short_number(n); }},
                 {"to ddp", "/time_relative_to_ddp", as_ratio},
                 {"to independent", "/time_relative_to_independent", as_ratio},
                 {"of peak", "/share_of_peak", as_percent},
                 {"memory", "/peak_total_bytes",
                  [](const Json& ranks) { return as_bytes(*std::ranges::max_element(ranks)); }}});
  bool any = false;
  for (const Json& row : results)
    if (any |= !row.contains("out_of_memory"); row.contains("out_of_memory") && !options.json)
      std::printf("%s with %s: %s\n", as_is(row["stage"]).c_str(),
                  plural(row["ranks"], "rank").c_str(), as_is(row["out_of_memory"]).c_str());
  if (options.profile && !options.json) {
    std::printf("\n");
    print_results(profile, false, "kernels", kernel_columns<Json>());
  }
  return any ? kFine : kOutOfMemory;
}

constexpr const char* kStepFooter =
    R"(Rows: one rank, which communicates nothing; --ranks independent ranks, which show what ranks
cost each other by sharing caches and memory; as many ranks under ddp, which always runs, and each
listed stage. Each rank has its own micro-batch, so more ranks do more work. Every row runs in each
of --rounds rounds, so that other load affects all rows alike; "to ddp" (the cost of a stage) and
"to independent" (that of communication) are medians of the rounds' ratios. Memory is the largest
peak of a rank, with what is offloaded to the host.
"of peak" counts 6 operations per parameter and token plus attention, and nothing that activation
checkpointing repeats, relative to the best rate measured on the device (model FLOPs utilisation).
--profile adds the time in each kernel on one rank, as 'bench kernels' does, and the rest of a step.

  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --ranks 1 --stages ddp --profile

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
  flags.toggle("--profile", "also the time in each kernel, and outside of kernels",
               options.profile);
  add_shared_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
