// zerolab check traffic: the collectives of a run beside those that are planned.

#include "tutorials/zerolab/check/traffic.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "nn/formats/named_gpt.h"
#include "tutorials/zerolab/check/commands.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TrafficOptions : RunOptions {
  std::vector<std::string> files;
  std::string as, units;
  int steps = 0;
};

struct Run {
  std::map<std::pair<int, int64_t>, std::vector<SeenCall>> steps;  // by rank and number
  std::set<std::string> formats, notes;
};

// Adds the ranks of a file; the `place`-th one, if it does not name its rank. Without marks it
// holds --steps of equal length.
void read_file(const TrafficOptions& options, const std::string& path, int place, Run& run) {
  const int ranks = *options.ranks;
  Recording file = read_recording(path);
  run.formats.insert(file.kind);
  run.notes.merge(file.notes);
  const bool fewer = file.ranks == 0 || (file.ranks < ranks && options.as == "hsdp");
  require_input(fewer || file.ranks == ranks, "'", path, "' is of a run of ",
                plural(file.ranks, "rank"), ", but --ranks says ", ranks);
  for (const auto& [rank, marked] : file.steps) {
    const int of = rank < 0 ? place : rank;
    const int64_t steps = std::max({1, marked, options.steps}),
                  n = std::ranges::count(file.calls, rank, &SeenCall::rank);
    require_input(marked == 0 || steps == marked, "the file marks ", plural(marked, "step"),
                  ", but --steps says ", options.steps, "; leave it out");
    require_input(n >= steps || marked > 0, "the file has ", plural(n, "call"),
                  ", fewer than --steps ", steps);
    require_input(of < ranks && !run.steps.contains({of, 0}), "'", path, "' is of rank ", of,
                  "; --ranks says ", ranks, ", from 0 on, and each rank is given once");
    for (int64_t step = 0; step < steps; ++step) run.steps[{of, step}] = {};
    int64_t i = 0;
    for (const SeenCall& call : file.calls) {
      if (call.rank != rank) continue;
      const auto step = run.steps.find({of, marked > 0 ? call.step : i++ * steps / n});
      if (step != run.steps.end())
        step->second.push_back(call);
      else
        run.notes.insert("calls outside the marked steps are not counted");
    }
    if (marked + options.steps == 0)
      run.notes.insert("the file marks no steps: all of it is one; if it holds K, add --steps K");
  }
}

constexpr const char* kNumbers[] = {"/calls", "/planned_calls", "/elements", "/planned_elements"};

// Compares each step of each rank. A difference that not all of them have says how many do.
Json compare_all(const TrafficOptions& options, const TrafficCase& c) {
  Run run;
  for (const std::string& path : options.files)
    read_file(options, path, int(&path - options.files.data()), run);
  std::map<Difference, size_t> found;  // harmless ones last
  Json rows, differences = Json::array();
  const size_t steps = run.steps.size();
  for (const auto& [step, calls] : run.steps) {
    TrafficVerdict verdict = compare_traffic(c, calls);
    run.notes.merge(verdict.notes);
    for (const Difference& d : verdict.differences) ++found[d];
    if (step.first != run.steps.begin()->first.first) continue;
    rows = Json::array();  // of the last step of the first rank
    for (const auto& [of, numbers] : verdict.rows) {
      rows.push_back({{"collective", of.first}, {"purpose", of.second}});
      for (size_t i = 0; i < numbers.size(); ++i)
        rows.back()[Json::json_pointer(kNumbers[i])] = numbers[i];
    }
  }
  for (const auto& [d, times] : found) {
    const std::string only = times < steps ? str(" (", times, " of ", steps, " steps)") : "";
    differences.push_back({{"text", d.second + only}, {"harmless", d.first}});
  }
  return {{"schema", 1},
          {"command", "check traffic"},
          {"ok", found.empty() || found.begin()->first.first},
          {"as", options.as},
          {"ranks", c.ranks},
          {"formats", run.formats},
          {"steps_compared", steps},
          {"traffic_per_step", rows},
          {"differences", differences},
          {"notes", run.notes}};
}

int check_traffic(TrafficOptions& options) {
  if (options.units.empty() == !options.given("--model"))
    throw UsageError("say what the model is: --model NAME, or --units FILE with its parameters");
  options.source.ranks = *options.ranks;
  options.source.several_stages = true;
  if (options.as.starts_with("deepspeed"))  // decides what the configuration leaves out
    options.source.sets.push_back("zerolab.defaults=deepspeed");
  LoadedConfig loaded = load_settings(options, *options.ranks);
  const TrafficCase c{options.units.empty() ? gpt_units(choose_model(options, loaded).model)
                                            : read_units(options.units, loaded.config.precision),
                      options.as, loaded.config, *options.ranks};
  const Json document = compare_all(options, c);
  std::vector<Column<Json>> columns = {{"collective", "/collective", as_is<Json>},
                                       {"purpose", "/purpose", as_is<Json>}};
  for (const char* at : kNumbers)
    columns.push_back({at[1] == 'p' ? "planned" : at + 1, at,
                       [](const Json& value) { return with_commas(value); }});
  return print_comparison(document, options.json,
                          str("a step of a rank, beside ", options.as, "\n") +
                              table_text(document["traffic_per_step"], columns),
                          document["ok"] ? "as planned\n" : "not as planned\n");
}

constexpr const char* kFooter =
    R"(FILE is what a run wrote, of one rank or of several: a trace of PyTorch's profiler
(.json, .json.gz; record_shapes=True), NCCL's log (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL),
PyTorch's flight recorder as JSON, or a trace of 'zerolab train --trace'.

Examples:
  zerolab check traffic trace.json.gz --as fsdp2 --ranks 2 --model gpt2
  zerolab check traffic r0.log r1.log --as torch-ddp --ranks 2 --units units.txt --steps 10
  zerolab check traffic fr.json --as zero2 --ranks 4 --model tiny --set gradient_clipping=1

Exit codes: 0 as planned, or but for numbers such as norm and loss; 1 a difference, 2 usage)";

void add_traffic(CLI::App& check, Invocation& invocation) {
  static TrafficOptions options;
  Flags flags(check, invocation, "traffic",
              "collectives of a run beside the planned ones; names each difference",
              [] { return check_traffic(options); });
  flags.value(
      "FILE", "", "trace, log or flight recorder; one or more",
      [](const std::string& text) { options.files.push_back(text); }, Flags::Takes::several);
  static const std::vector<std::string> systems = comma_list(kSystems);
  flags.add(
      "--as", "WHAT", options.as,
      [](const std::string& text) { return systems[choose(text, systems)]; },
      std::string("what the run is meant to do: ") + kSystems);
  flags.name("--units", "FILE",
             "any model: name, shape, dtype and unit per line, as units.py writes them",
             options.units);
  add_settings(flags, options);
  flags.add("--ranks", "N", options.ranks, count_within(1, 1 << 20), "number of ranks of the run");
  flags.add("--precision", "TYPE", options.source.precision, read_precision,
            "type of the parameters: fp32, bf16 or fp16 (default fp32)");
  flags.add("--steps", "K", options.steps, count_within(1, 1 << 20),
            "how many steps a file holds that does not mark them (default 1)");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  for (const char* flag : {"FILE", "--as", "--ranks"}) flags.required(flag);
  flags.footer(kFooter);
}

[[maybe_unused]] const bool check_is_here =
    have_program("check", [](CLI::App& check, Invocation& invocation) {
      add_traffic(check, invocation);
      add_losses(check, invocation);
    });

}  // namespace

void add_settings(Flags& flags, RunOptions& options) {
  flags.value("--model", "NAME", "tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl",
              [&](const std::string& text) {
                options.set("--model", "zerolab.model", gpt_names()[choose(text, gpt_names())]);
              });
  flags.name("--config", "FILE", "a DeepSpeed JSON file", options.source.file);
  flags.value(
      "--set", "KEY=VALUE", "one setting of such a file: gradient_accumulation_steps=A, …",
      [&](const std::string& text) { options.source.sets.push_back(text); }, Flags::Takes::several);
}

}  // namespace zl::cli
