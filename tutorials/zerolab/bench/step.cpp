// zerolab bench step: a training step on one rank, then on several, without communication and under
// each stage.

#include "tutorials/zerolab/bench/step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/number_text.h"
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
  if (options.micro_batch > 0) setup.spec.micro_batch = options.micro_batch;
  return setup;
}

std::string profile_text(const Json& profile, bool on_gpu) {
  const Json& outside = profile["share_outside_kernels"];
  return str("\nOne rank's time in a step (", profile["steps"], " steps, ",
             as_seconds(profile["seconds_per_step"]["median"]),
             " each), and shares of the peak and ", as_giga(profile["copy_bytes_per_second"]),
             " GB/s of copy:\n\n", kernel_table(profile["kernels"].dump()),
             "\noutside of kernels: ", as_percent(outside["median"]), " of a step, ",
             as_percent(outside["min"]), " to ", as_percent(outside["max"]),
             on_gpu ? "; gaps, in which the GPU waits for the host\n"
                    : "; tape, events, ledger, checks, and reading the clock for this table\n");
}

std::string step_text(const Json& report) {
  const bool on_gpu = report["device"] == "cuda";
  std::string unfit;
  for (const Json& row : report["results"])
    if (row.contains("out_of_memory"))
      unfit += str(as_is(row["stage"]), " with ", row["ranks"],
                   " ranks: ", as_is(row["out_of_memory"]), "\n");
  const int threads = report["threads"];
  const std::string place = on_gpu         ? "a GPU"
                            : threads == 1 ? "a core"
                                           : str(std::min(threads, usable_cores()), " cores, for ",
                                                 threads, " threads of a rank");
  return str(
      as_is(report["model"]), ": ", with_commas(report["parameters"]), " parameters, ",
      as_is(report["precision"]), "; B ", report["micro_batch"], " × A ", report["accumulation"],
      ", T ", report["window"], "; ", as_is(report["device_name"]),
      report["tf32"].get<bool>() ? ", fp32 matmuls and attention in TF32" : "", "\nmedian of ",
      report["steps"], " steps in ", report["rounds"], " rounds, after ", report["warm_up"],
      " in each; peak: ", as_giga(report["operations_per_second"]), " GFLOP/s of ", place, "\n\n",
      table_text<Json>(
          report["results"],
          {{"stage", "/stage",
            [](const Json& stage) {
              return stage == "independent" ? "no communication" : as_is(stage);
            }},
           {"ranks", "/ranks", as_is},
           {"median", "/seconds_per_step/median", as_seconds},
           {"min", "/seconds_per_step/min", as_seconds},
           {"max", "/seconds_per_step/max", as_seconds},
           {"tokens/s", "/tokens_per_second", [](const Json& n) { return short_number(n); }},
           {"to ddp", "/time_relative_to_ddp", as_ratio},
           {"to independent", "/time_relative_to_independent", as_ratio},
           {"of peak", "/share_of_peak", as_percent},
           {"memory", "/peak_total_bytes",
            [](const Json& ranks) { return as_bytes(*std::ranges::max_element(ranks)); }}}),
      "\n", unfit,
      "Each rank has its own micro-batch. 'zerolab bench step --help' explains the columns.\n",
      report.contains("profile") ? profile_text(report["profile"], on_gpu) : "");
}

int bench_step(StepOptions options) {
  options.rounds = std::min(options.rounds, options.timed);
  const RunSetup setup = set_up(options);
  const GptTrainingSpec& spec = setup.spec;
  require_input(!options.profile || spec.engine.offload_optimizer == OffloadDevice::none,
                "--profile times kernels on the device; leave out offload_optimizer");
  double peak = 0;
  const Json results = Json::parse(measure_rows(options, setup, peak));
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
  if (options.profile) report["profile"] = Json::parse(measure_profile(options, setup, peak));
  print_results(report, options.json, step_text);
  const auto ran = [](const Json& row) { return !row.contains("out_of_memory"); };
  return std::ranges::any_of(results, ran) ? 0 : 3;
}

constexpr const char* kStepFooter =
    R"(Rows: one rank, which communicates nothing; then --ranks independent ranks, which show what
ranks cost each other by sharing caches and memory; then as many ranks under ddp, which always
runs, and each listed stage. Each rank has its own micro-batch, so more ranks do more work. "to
independent" is the cost of communication, "to ddp" that of a stage. Memory is the largest peak of
a rank, with what is offloaded to the host.
Every row runs in each of --rounds rounds, for its part of --steps, so that other load on the
machine affects all rows alike. A ratio is the median of the rounds' ratios.
"of peak" counts 6 operations per parameter and token plus attention, without the recomputation of
activation checkpointing, relative to the best rate measured on the device (model FLOPs utilisation,
Chowdhery et al. 2022). With --threads N a rank's peak is that of N cores, or of all. Ranks whose
threads exceed the number of cores, or on one GPU, share its peak.
--profile adds the time in each kernel on one rank (M×N×K of each matmul) beside its limits, as
'bench kernels' does, and the rest of a step. A GPU's times are by its own clock.

Examples:
  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --ranks 1 --stages ddp --profile
  zerolab bench step --model gpt2 --precision bf16 --micro-batch 8 --device cuda

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
