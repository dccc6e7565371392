// zerolab bench step: a training step on one rank, then on several, without communication and under
// each stage.

#include "tutorials/zerolab/bench/step.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/timed_backend.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepRanks = 4;

RunSetup set_up(StepOptions options) {
  options.set("--steps", "zerolab.steps", std::to_string(options.timed + options.warm_up), false);
  const bool names_model = options.given("--model") || options.n_layer || options.n_head ||
                           options.n_embd || options.block_size || options.vocab_size ||
                           !options.init_from.empty() || !options.source.file.empty();
  // On a GPU the default model is too small: it would measure the time of kernel launches.
  if (!names_model && choose_device({.device = options.device}, Dtype::f32, 1).on_gpus())
    options.set("--model", "zerolab.model", "gpt2");
  RunSetup setup = set_up_run(options, kStepRanks);
  if (options.micro_batch) setup.spec.micro_batch = *options.micro_batch;
  return setup;
}

// ---- JSON --------------------------------------------------------------------------------------

// The ratio of each round's median to that of the row with as many ranks of ddp, or so many
// independent ones; null if it did not run.
void add_ratio(Json& json, const StepRow& row, const StepRows& all, bool independent) {
  const std::string key = independent ? "time_relative_to_independent" : "time_relative_to_ddp";
  json[key] = json[key + "_range"] = nullptr;
  for (const StepRow& other : all.rows) {
    if (other.independent != independent || other.stage != StageKind::ddp ||
        other.ranks != row.ranks || row.ranks != all.rows.back().ranks ||
        !other.out_of_memory.empty())
      continue;
    std::vector<double> ratios;
    for (size_t i = 0; i < row.rounds.size(); ++i)
      ratios.push_back(spread_of(row.rounds[i]).median / spread_of(other.rounds[i]).median);
    const Spread ratio = spread_of(std::move(ratios));
    json[key] = ratio.median;
    json[key + "_range"] = {{"min", ratio.min}, {"max", ratio.max}};
  }
}

Json row_json(const StepRow& row, const StepRows& all, const RunSetup& setup) {
  Json json{{"stage", row.name()},
            {"ranks", row.ranks},
            {"micro_batch", setup.spec.micro_batch},
            {"window", setup.spec.window},
            {"parameters", setup.spec.model.parameters()}};
  if (!row.out_of_memory.empty()) {
    json["out_of_memory"] = row.out_of_memory;
    return json;
  }
  std::vector<double> steps;
  for (const auto& round : row.rounds) steps.insert(steps.end(), round.begin(), round.end());
  const Spread seconds = spread_of(std::move(steps));
  const int places = setup.device.places(row.ranks);
  const auto known = [&](int64_t n) { return row.peak_resident > 0 ? Json(n) : Json(nullptr); };
  json["seconds_per_step"] = seconds;
  json["tokens_per_second"] = double(row.tokens) / seconds.median;
  for (const bool independent : {false, true}) add_ratio(json, row, all, independent);
  json.update({{"operations_per_step", row.operations},
               {"places", places},
               {"share_of_peak", row.operations / seconds.median / (all.operation_rate * places)},
               {"peak_total_bytes", row.peak},
               {"tokens_per_step", row.tokens},
               {"page_faults_per_step", row.page_faults},
               {"peak_resident_bytes", known(row.peak_resident)},
               {"resident_bytes_before", known(row.resident_before)}});
  return json;
}

// [s] per call, outside of the kernel's own time.
double clock_seconds(const GptTrainingSpec& spec) {
  constexpr int calls = 1000;
  TimedBackend timed(spec.backends ? spec.backends(0).device : nullptr);
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    timed.begin();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) timed.move_bytes(nullptr, nullptr, 0);
    std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
    for (const TimedKernel& call : timed.calls())
      all -= std::chrono::duration<double>(call.seconds);
    samples.push_back(all.count() / calls);
  }
  return spread_of(std::move(samples)).median;
}

// The longest first. `seconds`: [s] of all `steps`.
Json kernels_json(const std::vector<TimedStep>& steps, double seconds) {
  struct Total {
    int64_t calls = 0, operations = 0, bytes = 0;
    double seconds = 0;
  };
  std::map<std::string, Total> totals;
  for (const TimedStep& step : steps)
    for (const TimedKernel& call : step.calls) {
      Total& total = totals[call.name];
      ++total.calls, total.seconds += call.seconds;
      total.operations += call.operations, total.bytes += call.bytes;
    }
  std::vector<std::pair<std::string, Total>> sorted(totals.begin(), totals.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& a) { return a.second.seconds; });
  const auto n = double(steps.size());
  Json json = Json::array();
  for (const auto& [name, total] : sorted)
    json.push_back({{"kernel", name},
                    {"calls_per_step", double(total.calls) / n},
                    {"seconds_per_step", total.seconds / n},
                    {"share_of_step", total.seconds / seconds},
                    {"operations_per_step", double(total.operations) / n},
                    {"bytes_per_step", double(total.bytes) / n}});
  return json;
}

// The time in each kernel and outside of all kernels: steps of ddp on one rank, which communicates
// nothing.
Json profile_json(const StepOptions& options, const RunSetup& setup) {
  GptTrainingSpec spec = one_rank(setup.spec);
  spec.engine.stage = StageKind::ddp;
  spec.steps = options.warm_up + options.timed;
  Progress progress(spec.steps, options.quiet);
  int64_t begun = 0, untimed = 0, calls = 0;
  const std::vector<TimedStep> steps = time_kernels(spec, TimedBy::device, options.warm_up, [&] {
    progress.item(str("profile, step ", ++begun));
  });
  progress.clear();
  double sum = 0;                        // [s]
  std::vector<double> seconds, outside;  // of each step: [s], share outside of kernels
  for (const TimedStep& step : steps) {
    double inside = 0;
    for (const TimedKernel& call : step.calls) inside += call.seconds;
    sum += step.seconds, untimed += step.untimed, calls += std::ssize(step.calls);
    seconds.push_back(step.seconds);
    outside.push_back(1 - inside / step.seconds);
  }
  return {{"stage", "ddp"},
          {"ranks", 1},
          {"steps", options.timed},
          {"seconds_per_step", spread_of(std::move(seconds))},
          {"share_outside_kernels", spread_of(std::move(outside))},
          {"untimed_calls", untimed},
          {"kernels", kernels_json(steps, sum)},
          {"clock_seconds_per_step", clock_seconds(spec) * double(calls) / double(options.timed)}};
}

Json measure(const StepOptions& options, const RunSetup& setup) {
  const GptTrainingSpec& spec = setup.spec;
  const StepRows all = measure_steps(options, setup);
  Json rows = Json::array();
  for (const StepRow& row : all.rows) rows.push_back(row_json(row, all, setup));
  Json report{{"schema", 1},
              {"command", "bench step"},
              {"ok", true},
              {"device", spec.device_name()},
              {"device_name", setup.device.name()},
              {"tf32", setup.device.tf32},
              {"threads", setup.device.threads},
              {"model", setup.model.name},
              {"parameters", spec.model.parameters()},
              {"precision", precision_name(spec.engine.precision)},
              {"micro_batch", spec.micro_batch},
              {"accumulation", spec.engine.accumulation},
              {"window", spec.window},
              {"steps", options.timed},
              {"warm_up", options.warm_up},
              {"rounds", options.rounds},
              {"operations_per_second", all.operation_rate},
              {"results", rows}};
  if (options.profile) report["profile"] = profile_json(options, setup);
  return report;
}

// ---- text --------------------------------------------------------------------------------------

std::string share_text(const Json& share) { return digits(100 * share.get<double>(), 3) + " %"; }
std::string times(const Json& ratio) { return ratio.is_null() ? "-" : "× " + digits(ratio, 3); }

std::string profile_text(const Json& profile, double operation_rate, bool on_gpu) {
  TextTable table;
  table.row({"kernel", "calls", "ms", "of step", "µs each", "GFLOP/s", "of peak", "GB/s"});
  for (const Json& k : profile["kernels"]) {
    const double seconds = k["seconds_per_step"], bytes = k["bytes_per_step"],
                 rate = k["operations_per_step"].get<double>() / seconds;
    table.row({k["kernel"], digits(k["calls_per_step"], 4), digits(1e3 * seconds, 3),
               share_text(k["share_of_step"]),
               digits(1e6 * seconds / k["calls_per_step"].get<double>(), 3),
               rate > 0 ? digits(rate / 1e9, 3) : "-",
               rate > 0 ? share_text(rate / operation_rate) : "-",
               bytes > 0 ? digits(bytes / seconds / 1e9, 3) : "-"});
  }
  const Json& outside = profile["share_outside_kernels"];
  const double seconds = profile["seconds_per_step"]["median"], median = outside["median"];
  table.row({"outside of kernels", "", digits(1e3 * median * seconds, 3), share_text(median), "",
             "", "", ""});
  const int64_t untimed = profile["untimed_calls"];
  return str(
      "\nOne rank's time in a step (", profile["steps"], " steps, ", short_seconds(seconds),
      " each):\n\n", table.text(),
      on_gpu ? "\nGaps, in which the GPU waits for the host, are outside of kernels: "
             : "\nTape, events, ledger and checks are outside of kernels: ",
      share_text(outside["min"]), " to ", share_text(outside["max"]), " of a step",
      on_gpu ? ""
             : str(", of which reading the clock for this table takes ",
                   share_text(profile["clock_seconds_per_step"].get<double>() / seconds)),
      ".\n",
      untimed > 0 ? str(untimed, " kernel calls are not timed and count as outside.\n") : "");
}

std::string step_text(const Json& report) {
  const bool on_gpu = report["device"] == "cuda";
  TextTable table;
  table.row({"stage", "ranks", "median", "min", "max", "tokens/s", "to ddp", "to independent",
             "of peak", "memory"});
  std::string unfit;
  for (const Json& r : report["results"]) {
    const std::string stage = r["stage"], ranks = r["ranks"].dump(),
                      shown = stage == "independent" ? "no communication" : stage;
    if (r.contains("out_of_memory")) {
      table.row({shown, ranks, "-"});
      unfit += stage + " with " + ranks + " ranks: " + r["out_of_memory"].get<std::string>() + "\n";
      continue;
    }
    const Json& seconds = r["seconds_per_step"];
    const auto peaks = r["peak_total_bytes"].get<std::vector<int64_t>>();
    table.row({shown, ranks, short_seconds(seconds["median"]), short_seconds(seconds["min"]),
               short_seconds(seconds["max"]), short_number(r["tokens_per_second"]),
               times(r["time_relative_to_ddp"]), times(r["time_relative_to_independent"]),
               share_text(r["share_of_peak"]), human_bytes(std::ranges::max(peaks))});
  }
  const double rate = report["operations_per_second"];
  const int threads = report["threads"];
  return str(
      report["model"].get<std::string>(), ": ", with_commas(report["parameters"]), " parameters, ",
      report["precision"].get<std::string>(), "; B ", report["micro_batch"], " × A ",
      report["accumulation"], ", T ", report["window"], "; ",
      report["device_name"].get<std::string>(),
      report["tf32"].get<bool>() ? ", fp32 matmuls and attention in TF32" : "", "\nmedian of ",
      report["steps"], " steps in ", report["rounds"], " rounds, after ", report["warm_up"],
      " in each; peak: ", digits(rate / 1e9, 4), " GFLOP/s of ",
      on_gpu ? "a GPU"
      : threads == 1
          ? "a core"
          : str(std::min(threads, usable_cores()), " cores, for ", threads, " threads of a rank"),
      "\n\n", table.text(), "\n", unfit,
      "Each rank has its own micro-batch. 'zerolab bench step --help' explains the columns.\n",
      report.contains("profile") ? profile_text(report["profile"], rate, on_gpu) : "");
}

int bench_step(StepOptions options) {
  options.rounds = std::min(options.rounds, options.timed);
  const RunSetup setup = set_up(options);
  require_input(!options.profile || setup.spec.engine.offload_optimizer == OffloadDevice::none,
                "--profile times kernels on the device; leave out offload_optimizer");
  if (!options.quiet) note_reports_of_train(setup.config, "bench step");
  const Json report = measure(options, setup);
  print_results(report, options.json, step_text);
  const auto ran = [](const Json& row) { return !row.contains("out_of_memory"); };
  return std::ranges::any_of(report["results"], ran) ? 0 : 3;
}

constexpr const char* kStepFooter =
    R"(Rows: one rank, which communicates nothing; then --ranks independent ranks, which show what
ranks cost each other by sharing caches and memory; then as many ranks under ddp and each listed
stage. Each rank has its own micro-batch, so more ranks do more work. "to independent" is the cost
of communication, "to ddp" that of a stage. Memory is the largest peak of a rank, with what is
offloaded to the host.
Every row runs in each of --rounds rounds, for its part of --steps, so that other load on the
machine affects all rows alike. A ratio is the median of the rounds' ratios. The first --warm-up
steps of a row in a round are not timed.
"of peak" counts 6 operations per parameter and token plus attention, without the recomputation of
activation checkpointing, relative to the best rate measured on the device (model FLOPs utilisation,
Chowdhery et al. 2022). With --threads N a rank's peak is that of N cores, or of all. Ranks whose
threads exceed the number of cores, or on one GPU, share its peak.

--profile adds the time in each kernel on one rank (M×N×K of each matmul), and the rest:
tape, events and ledger, or on a GPU the gaps between kernels. A GPU's times are by its own clock.

Examples:
  zerolab bench step
  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --ranks 1 --stages ddp --profile
  zerolab bench step --ranks 1 --stages ddp --threads 2
  zerolab bench step --model gpt2 --precision bf16 --micro-batch 8 --device cuda
  zerolab bench step --model gpt2 --micro-batch 8 --device cuda --ranks 1 --stages ddp --profile

Exit codes: 0 fine, 2 usage or configuration, 3 nothing fits, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_step(CLI::App& bench, Invocation& invocation) {
  static StepOptions options;
  Flags flags(bench, invocation, "step",
              "time of a training step, on one rank and under each stage",
              [] { return bench_step(options); });
  flags.group("What");
  flags.value("--stages", "LIST",
              "ddp, zero1, zero2, zero3, separated by commas; ddp always runs (default all)",
              [](const auto& text) { options.stages = read_stages(text); });
  flags.value("--steps", "N", "timed steps of each row (default 10)",
              [](const auto& text) { options.timed = read_count(text, 1, 100'000); });
  flags.value("--warm-up", "N", "steps before them, in each round (default 2)",
              [](const auto& text) { options.warm_up = read_count(text, 0, 100'000); });
  flags.value("--rounds", "N", "each runs every row for its part of --steps (default 3)",
              [](const auto& text) { options.rounds = read_count(text, 1, 100'000); });
  flags.value("--micro-batch", "B", "sequences per rank (default 4, or --config's)",
              [](const auto& text) { options.micro_batch = read_count(text, 1, 1 << 20); });
  flags.toggle("--profile", "also the time in each kernel, and outside of kernels",
               options.profile);
  add_shared_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
