// zerolab bench step: a training step on one rank, then on several, without communication and under
// each stage.

#include "tutorials/zerolab/bench/step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/io/file_calls.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {

using Json = nlohmann::ordered_json;
template <>
Json measure_steps(const StepOptions&, const std::vector<StepPoint>&);
template <>
Json profile_kernels(const StepPoint&, const StepOptions&);

namespace {

constexpr int kStepRanks = 4;
constexpr int64_t kMaxRanks = 64;

struct Setting {
  const char* name;
  void (*set)(StepOptions& options, int64_t value);
};
constexpr Setting kSettings[] = {
    {"n_layer", [](StepOptions& o, int64_t v) { o.n_layer = v; }},
    {"n_head", [](StepOptions& o, int64_t v) { o.n_head = v; }},
    {"n_embd", [](StepOptions& o, int64_t v) { o.n_embd = v; }},
    {"block_size", [](StepOptions& o, int64_t v) { o.block_size = v; }},
    {"vocab_size", [](StepOptions& o, int64_t v) { o.vocab_size = v; }},
    {"micro_batch", [](StepOptions& o, int64_t v) { o.micro_batch = v; }},
    {"ranks", [](StepOptions& o, int64_t v) { o.ranks = int(v); }}};

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

// "n_layer=1,2,4". Throws InputError if the setting is unknown or a value is repeated.
Sweep read_sweep(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  Sweep sweep{.setting = text.substr(0, equals), .set = nullptr, .values = {}};
  std::ranges::replace(sweep.setting, '-', '_');  // the flags have dashes
  std::vector<std::string> known;
  std::string all;
  for (const Setting& s : kSettings) {
    if (sweep.setting == s.name) sweep.set = s.set;
    known.emplace_back(s.name), all += (all.empty() ? "" : ", ") + known.back();
  }
  require_input(sweep.set, "'", sweep.setting, "' cannot be swept; the settings are ", all,
                did_you_mean(sweep.setting, known));
  require_input(equals + 1 < text.size(), "'", text, "' has no values; write ", sweep.setting,
                "=1,2,4");
  for (const std::string& word : comma_list(text.substr(equals + 1))) {
    const int64_t value = read_count(word, 1, sweep.setting == "ranks" ? kMaxRanks : 1 << 20);
    require_input(std::ranges::count(sweep.values, value) == 0, "'", text, "' has ", value,
                  " twice");
    sweep.values.push_back(value);
  }
  return sweep;
}

// All points, opened and checked before anything runs. An error names the sweep that led to it.
std::vector<StepPoint> step_points(const StepOptions& options) {
  std::vector<StepPoint> points;
  if (options.sweeps.empty()) points.push_back({.setting = "", .setup = set_up(options)});
  for (const Sweep& sweep : options.sweeps) {
    require_input(std::ranges::count(options.sweeps, sweep.setting, &Sweep::setting) == 1,
                  "--sweep ", sweep.setting, " is given twice; write all values in one");
    for (const int64_t value : sweep.values) {
      StepOptions changed = options;
      sweep.set(changed, value);
      changed.quiet = options.quiet || !points.empty();  // the notes are the same for all points
      try {
        points.push_back({.setting = sweep.setting, .value = value, .setup = set_up(changed)});
      } catch (const InputError& e) {
        throw InputError(str("--sweep ", sweep.setting, "=", value, ": ", e.what()));
      }
    }
  }
  return points;
}

Json measure(const StepOptions& options, const std::vector<StepPoint>& points) {
  const RunSetup& setup = points.front().setup;
  const GptTrainingSpec& spec = setup.spec;
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
              {"rounds", options.rounds}};
  report.update(measure_steps<Json>(options, points));
  if (options.profile) report["profile"] = profile_kernels<Json>(points.front(), options);
  return report;
}

std::string share_text(const Json& share) { return digits(100 * share.get<double>(), 3) + " %"; }
std::string times(const Json& ratio) { return ratio.is_null() ? "-" : "× " + digits(ratio, 3); }
int64_t largest_peak(const Json& row) {
  return std::ranges::max(row["peak_total_bytes"].get<std::vector<int64_t>>());
}

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
  const bool sweeps = report["results"][0].contains("sweep");
  TextTable table;
  std::vector<std::string> titles = {"stage",   "ranks",    "median", "min",
                                     "max",     "tokens/s", "to ddp", "to independent",
                                     "of peak", "memory",   "faults"};
  if (sweeps)
    titles.insert(titles.begin(), "sweep"), titles.insert(titles.end(), {"parameters", "grows"});
  table.row(titles);
  std::string unfit;
  for (const Json& r : report["results"]) {
    const std::string stage = r["stage"], ranks = r["ranks"].dump(),
                      point = sweeps ? str(r["sweep"]["setting"].get<std::string>(), "=",
                                           r["sweep"]["value"])
                                     : "";
    std::vector<std::string> row = {stage == "independent" ? "no communication" : stage, ranks};
    if (sweeps) row.insert(row.begin(), point);
    if (r.contains("out_of_memory")) {
      row.push_back("-");
      unfit += str(point, sweeps ? ", " : "", stage, " with ", ranks,
                   " ranks: ", r["out_of_memory"].get<std::string>(), "\n");
    } else {
      const Json& seconds = r["seconds_per_step"];
      row.insert(row.end(),
                 {short_seconds(seconds["median"]), short_seconds(seconds["min"]),
                  short_seconds(seconds["max"]), short_number(r["tokens_per_second"]),
                  times(r["time_relative_to_ddp"]), times(r["time_relative_to_independent"]),
                  share_text(r["share_of_peak"]), human_bytes(largest_peak(r)),
                  digits(r["page_faults_per_step"], 2)});
      if (sweeps)
        row.insert(row.end(),
                   {with_commas(r["parameters"]), times(r["time_relative_to_previous"])});
    }
    table.row(row);
  }
  const double rate = report["operations_per_second"];
  return str(
      report["model"].get<std::string>(), sweeps ? " and others: " : ": ",
      with_commas(report["parameters"]), " parameters, ", report["precision"].get<std::string>(),
      "; B ", report["micro_batch"], " × A ", report["accumulation"], ", T ", report["window"],
      "; ", report["device_name"].get<std::string>(),
      report["tf32"].get<bool>() ? ", fp32 matmuls and attention in TF32" : "", "\nmedian of ",
      report["steps"], " steps in ", report["rounds"], " rounds, after ", report["warm_up"],
      " in each; peak: ", digits(rate / 1e9, 4), " GFLOP/s of ",
      report["device"] != "cpu" ? "a GPU"
      : report["threads"] == 1  ? "a core"
                                : str(std::min(report["threads"].get<int>(), usable_cores()),
                                      " cores, for ", report["threads"], " threads of a rank"),
      "\n\n", table.text(), "\n", unfit,
      "Each rank has its own micro-batch. 'zerolab bench step --help' explains the columns.\n",
      report.contains("profile") ? profile_text(report["profile"], rate, report["device"] != "cpu")
                                 : "");
}

std::string csv(const Json& report) {
  std::string text =
      "setting,value,stage,ranks,micro_batch,window,parameters,tokens,seconds_median,seconds_min,"
      "seconds_max,tokens_per_second,share_of_peak,time_relative_to_ddp,"
      "time_relative_to_independent,peak_bytes,page_faults\n";
  for (const Json& r : report["results"]) {
    const bool swept = r.contains("sweep");
    text += str(swept ? r["sweep"]["setting"].get<std::string>() : "", ",",
                swept ? r["sweep"]["value"].dump() : "", ",", r["stage"].get<std::string>());
    for (const char* key : {"ranks", "micro_batch", "window", "parameters"})
      text += "," + r[key].dump();
    if (r.contains("out_of_memory")) {
      text += std::string(10, ',') + "\n";
      continue;
    }
    const Json& seconds = r["seconds_per_step"];
    text += "," + r["tokens_per_step"].dump();
    for (const Json& value :
         {seconds["median"], seconds["min"], seconds["max"], r["tokens_per_second"],
          r["share_of_peak"], r["time_relative_to_ddp"], r["time_relative_to_independent"]})
      text += "," + (value.is_null() ? "" : digits(value, 6));
    text += str(",", largest_peak(r), ",", digits(r["page_faults_per_step"], 6), "\n");
  }
  return text;
}

int bench_step(StepOptions options) {
  options.rounds = std::min(options.rounds, options.timed);
  require_input(!options.profile || options.sweeps.empty(),
                "--profile measures one model; leave out --sweep");
  require_input(!options.force || !options.csv.empty(),
                "--force replaces the file of --csv, which is not given");
  if (!options.csv.empty()) require_output_file(options.csv, "", options.force);
  const std::vector<StepPoint> points = step_points(options);
  const RunSetup& setup = points.front().setup;
  require_input(!options.profile || setup.spec.engine.offload_optimizer == OffloadDevice::none,
                "--profile times kernels on the device; leave out offload_optimizer");
  if (!options.quiet) note_reports_of_train(setup.config, "bench step");
  if (!options.csv.empty()) PendingFile{options.csv};  // fails now if the file cannot be written
  const Json report = measure(options, points);
  if (!options.csv.empty()) {
    const std::string table = csv(report);
    PendingFile file(options.csv);
    file.write(table.data(), table.size());
    file.commit();
  }
  print_results(report, options.json, step_text);
  const auto ran = [](const Json& row) { return !row.contains("out_of_memory"); };
  return std::ranges::any_of(report["results"], ran) ? 0 : 3;
}

constexpr const char* kStepFooter =
    R"(Rows: one rank, which communicates nothing; then --ranks independent ranks, which show what
ranks cost each other by sharing caches and memory; then as many ranks under ddp and each listed
stage. Each rank has its own micro-batch, so more ranks do more work. "to independent" is the cost
of communication, "to ddp" that of a stage. Memory is the largest peak of a rank, with what is
offloaded to the host; faults are pages that a step touches for the first time.
Every row runs in each of --rounds rounds, for its part of --steps, so that other load on the
machine affects all rows alike. A ratio is the median of the rounds' ratios. The first --warm-up
steps of a row in a round are not timed.
"of peak" counts 6 operations per parameter and token plus attention, without the recomputation of
activation checkpointing, relative to the best rate measured on the device (model FLOPs utilisation,
Chowdhery et al. 2022). With --threads N a rank's peak is that of N cores, or of all. Ranks whose
threads exceed the number of cores, or on one GPU, share its peak.

A sweep gives one setting several values: n_layer, n_head, n_embd, block_size, vocab_size,
micro_batch or ranks. All others stay as the flags say. "grows" is the time relative to the previous
value. --profile adds the time in each kernel on one rank (M×N×K of each matmul), and the rest:
tape, events and ledger, or on a GPU the gaps between kernels. A GPU's times are by its own clock.

Examples:
  zerolab bench step
  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --ranks 1 --stages ddp --profile
  zerolab bench step --ranks 1 --stages ddp --threads 2
  zerolab bench step --ranks 1 --stages ddp --sweep n_layer=1,2,4,8 --csv sizes.csv
  zerolab bench step --sweep ranks=1,2,4 --rounds 5 --csv ranks.csv
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
  add_settings_flags(flags, options);
  flags.group("Sizes");
  flags.values("--sweep", "NAME=LIST",
               "several values of one setting, such as n_layer=1,2,4; may be given several times",
               [](const auto& text) { options.sweeps.push_back(read_sweep(text)); });
  flags.value("--csv", "FILE", "also write one line per row to FILE", [](const auto& text) {
    require_input(!text.empty(), "the name is empty");
    options.csv = text;
  });
  flags.toggle("--force", "replace FILE if it exists", options.force);
  add_rank_flags(flags, options, kStepRanks);
  add_model_flags(flags, options);
  add_output_flags(flags, options);
  flags.footer(kStepFooter);
}

}  // namespace zl::cli
