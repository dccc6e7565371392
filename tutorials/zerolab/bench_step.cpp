// zerolab bench step: a training step on one rank, then on several under each stage.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "stages/comparison.h"
#include "tutorials/zerolab/bench.h"
#include "tutorials/zerolab/bench_progress.h"
#include "tutorials/zerolab/measure.h"
#include "tutorials/zerolab/quantity.h"
#include "tutorials/zerolab/run_setup.h"
#include "tutorials/zerolab/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultRanks = 4;

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  std::optional<int64_t> micro_batch;
  int64_t timed = 10, warm_up = 2;
};

// One row: a stage at some number of ranks.
struct StepResult {
  StageKind stage;
  int ranks;
  std::string out_of_memory;  // why it did not run; then nothing below is set
  Spread seconds;             // of a step
  int64_t tokens = 0;         // of a step
  double operations = 0;      // of a step, of all ranks
  std::vector<int64_t> peak;  // [B] by rank, device and host pool together
  double share = 0;           // of what all places together can do
};

struct StepReport {
  const StepOptions& options;
  const RunSetup& setup;
  double operation_rate = 0;  // [1/s] of one place
  std::vector<StepResult> results;
  const StepResult* ddp() const {  // at the number of ranks that was asked for
    for (const StepResult& r : results)
      if (r.stage == StageKind::ddp && r.ranks == setup.spec.ranks && r.out_of_memory.empty()) return &r;
    return nullptr;
  }
};

// A product of each weight and token forward, two backward: 6 operations per parameter and token (Kaplan et al. 2020,
// arXiv:2001.08361, section 2.1). Attention's own come on top: backward's are 10 for forward's 4, and unlike those they
// are not made twice where blocks are recomputed.
double operations_of(const TrainingSpec& spec, int64_t tokens, int64_t attention_backward) {
  return 6.0 * double(spec.model.parameters()) * double(tokens) + 1.4 * double(attention_backward) * spec.ranks;
}

StepResult run_stage(const TrainingSpec& whole, StageKind stage, int ranks, const StepOptions& options, BenchProgress& progress) {
  TrainingSpec spec = whole;
  spec.config.stage = stage;
  spec.ranks = ranks;
  StepResult result{.stage = stage, .ranks = ranks};
  int64_t attention = 0, steps = 0;  // rank 0's thread alone touches them
  const auto label = [&](int64_t step) {
    return str(name(stage), ranks == 1 ? " on 1 rank" : str(" on ", ranks, " ranks"), ", step ", step);
  };
  progress.next(label(1));
  const TrainingCallbacks callbacks{
      .at_start = [&](RankTraining& training) {
        if (training.comm().rank() != 0) return;
        training.memory().events().listen([&](const Event& e) {
          if (e.kind == EventKind::kernel && std::strcmp(e.what, "attention_backward") == 0) attention += e.count;
        });
      },
      .on_step = [&](const StepRecord&) {
        if (++steps < spec.config.steps) progress.next(label(steps + 1));
      }};
  const TrainingResult run = run_training(spec, callbacks);
  std::vector<double> seconds;
  for (size_t i = size_t(options.warm_up); i < run.steps.size(); ++i) seconds.push_back(run.steps[i].seconds);
  result.seconds = spread_of(std::move(seconds));
  result.tokens = run.steps.back().tokens;
  result.operations = operations_of(spec, result.tokens, attention / spec.config.steps);
  for (const RankReport& rank : run.ranks) result.peak.push_back(rank.rest.peak_total() + rank.host.peak_total());
  return result;
}

StepReport measure(const StepOptions& options, const RunSetup& setup) {
  StepReport report{.options = options, .setup = setup};
  const TrainingSpec& spec = setup.spec;
  std::vector<std::pair<StageKind, int>> rows = {{StageKind::ddp, 1}};
  if (spec.ranks > 1) rows.emplace_back(StageKind::ddp, spec.ranks);
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.emplace_back(stage, spec.ranks);
  BenchProgress progress(1 + int64_t(rows.size()) * spec.config.steps, options.quiet);
  progress.next("rate of operations");
  report.operation_rate = Workbench(setup.device).operation_rate(spec.config.precision);
  for (const auto& [stage, ranks] : rows) {
    try {
      TrainingSpec checked = spec;
      checked.ranks = ranks;
      require_memory(checked, setup, {stage});
      StepResult result = run_stage(spec, stage, ranks, options, progress);
      result.share = result.operations / result.seconds.median / (report.operation_rate * setup.device.places(ranks));
      report.results.push_back(std::move(result));
    } catch (const OutOfMemory& e) {
      report.results.push_back({.stage = stage, .ranks = ranks, .out_of_memory = e.what()});
    }
  }
  return report;
}

std::string text(const StepReport& report) {
  const TrainingSpec& spec = report.setup.spec;
  std::string head = str(report.setup.model.name, ": ", with_commas(spec.model.parameters()), " parameters, ",
                         precision_name(spec.config.precision), "; B ", spec.config.micro_batch, " × A ",
                         spec.config.accumulation, ", windows of ", spec.window, " tokens; ", report.setup.device.name(),
                         report.setup.device.tf32 ? ", fp32 products in TF32" : "", "\nmedian of ", report.options.timed,
                         " steps after ", report.options.warm_up, "; peak: ", digits(report.operation_rate / 1e9, 4),
                         " GFLOP/s of ", report.setup.device.on_gpus() ? "a GPU" : "a core", ", times ",
                         report.setup.device.places(spec.ranks), " with ", spec.ranks, " ranks\n\n");
  TextTable table;
  table.row({"stage", "ranks", "ms per step", "min", "max", "tokens/s", "time to ddp's", "share of peak", "memory of a rank"});
  const auto ms = [](double seconds) { return digits(1e3 * seconds, 4); };
  std::string unfit;
  for (const StepResult& r : report.results) {
    if (!r.out_of_memory.empty()) {
      table.row({name(r.stage), str(r.ranks), "-"});
      unfit += str(name(r.stage), " with ", r.ranks, r.ranks == 1 ? " rank" : " ranks", ": ", r.out_of_memory, "\n");
      continue;
    }
    const StepResult* ddp = r.ranks == spec.ranks ? report.ddp() : nullptr;
    table.row({name(r.stage), str(r.ranks), ms(r.seconds.median), ms(r.seconds.least), ms(r.seconds.most),
               short_number(double(r.tokens) / r.seconds.median),
               ddp ? str("× ", digits(r.seconds.median / ddp->seconds.median, 3)) : "-", digits(100 * r.share, 3) + " %",
               human_bytes(*std::ranges::max_element(r.peak))});
  }
  return head + table.text() + "\n" + unfit +
         "Each rank has its own micro-batch, so more ranks do more work per step. Peak counts 6 operations per parameter and "
         "token,\n"
         "and attention's; memory is the fullest rank's fullest moment, what is offloaded to the host included.\n";
}

std::string json(const StepReport& report) {
  const TrainingSpec& spec = report.setup.spec;
  Json json{{"schema", 1},
            {"command", "bench step"},
            {"ok", true},
            {"device", name(spec.device)},
            {"device_name", report.setup.device.name()},
            {"tf32", report.setup.device.tf32},
            {"model", report.setup.model.name},
            {"parameters", spec.model.parameters()},
            {"precision", precision_name(spec.config.precision)},
            {"micro_batch", spec.config.micro_batch},
            {"accumulation", spec.config.accumulation},
            {"window", spec.window},
            {"steps", report.options.timed},
            {"warm_up", report.options.warm_up},
            {"operations_per_second", report.operation_rate}};
  json["results"] = Json::array();
  for (const StepResult& r : report.results) {
    Json row{{"stage", name(r.stage)}, {"ranks", r.ranks}};
    if (!r.out_of_memory.empty()) {
      row["out_of_memory"] = r.out_of_memory;
      json["results"].push_back(row);
      continue;
    }
    const StepResult* ddp = r.ranks == spec.ranks ? report.ddp() : nullptr;
    row.update({{"seconds_per_step", {{"median", r.seconds.median}, {"min", r.seconds.least}, {"max", r.seconds.most}}},
                {"tokens_per_second", double(r.tokens) / r.seconds.median},
                {"time_relative_to_ddp", ddp ? Json(r.seconds.median / ddp->seconds.median) : Json(nullptr)},
                {"operations_per_step", r.operations},
                {"places", report.setup.device.places(r.ranks)},
                {"share_of_peak", r.share},
                {"peak_total_bytes", r.peak}});
    json["results"].push_back(row);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// On a GPU the default model would measure how fast kernels are launched.
bool names_a_model(const StepOptions& o) {
  return o.model || o.n_layer || o.n_head || o.n_embd || o.block_size || o.vocab_size || !o.init_from.empty() ||
         !o.config_file.empty();
}

int bench_step(const StepOptions& given) {
  StepOptions options = given;
  options.steps = options.timed + options.warm_up;
  if (!names_a_model(options) && choose_device({.device = options.device}, Dtype::f32, 1).on_gpus()) options.model = "gpt2";
  RunSetup setup = set_up_run(options, kDefaultRanks);
  if (options.micro_batch) setup.spec.config.micro_batch = *options.micro_batch;
  if (!options.quiet) note_reports_of_train(setup.spec.config, "bench step");
  const StepReport report = measure(options, setup);
  std::fputs((options.json ? json(report) : text(report)).c_str(), stdout);
  const bool any = std::ranges::any_of(report.results, [](const StepResult& r) { return r.out_of_memory.empty(); });
  return any ? 0 : 3;
}

constexpr const char* kFooter =
    R"(First one rank, which communicates nothing; then ddp and each listed stage on --ranks ranks, each with a micro-batch of
its own. The first steps, --warm-up, are not timed: they fill caches and take memory from the system. The share of the
peak counts the operations that training needs (6 per parameter and token, and attention's), not those that recomputation
adds, against the best that the device was measured to do (model FLOPs utilisation, Chowdhery et al. 2022). Ranks beyond
the cores, or that share a GPU, share its peak.
What a stage costs in time here is what it costs among threads of this machine; 'zerolab plan' counts its traffic.

Examples:
  zerolab bench step
  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --model gpt2 --precision bf16 --micro-batch 8 --device cuda

Exit codes: 0 fine, 2 usage or configuration, 3 nothing fits, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_step(CLI::App& bench, Invocation& invocation) {
  static StepOptions options;
  Flags flags(bench, invocation, "step", "how long a training step takes, on one rank and under each stage",
              [] { return bench_step(options); });
  flags.group("What");
  flags.value("--stages", "LIST", "of ddp, zero1, zero2, zero3 with commas between, beside ddp (default all)",
              [](const auto& text) { options.stages = read_stages(text); });
  flags.value("--steps", "N", "that are timed, of each stage (default 10)",
              [](const auto& text) { options.timed = read_count(text, 1, 100'000); });
  flags.value("--warm-up", "N", "steps before them (default 2)",
              [](const auto& text) { options.warm_up = read_count(text, 0, 100'000); });
  flags.value("--micro-batch", "B", "windows of a micro-batch of each rank (default 4, or --config's)",
              [](const auto& text) { options.micro_batch = read_count(text, 1, 1 << 20); });
  add_settings_flags(flags, options);
  add_rank_flags(flags, options, kDefaultRanks);
  add_model_flags(flags, options);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
