// zerolab check traffic: the collectives of a run beside those that are planned.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "nn/gpt.h"
#include "tutorials/zerolab/check/commands.h"
#include "tutorials/zerolab/check/differences.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TrafficOptions : RunOptions {
  std::vector<std::string> files;
  const SystemKind* as = nullptr;
  std::string units;
  int steps = 0;
};

// What the files hold, by rank.
struct Ranks {
  std::map<int, std::vector<SeenCall>> calls;
  std::map<int, int> steps;  // that the file marks
  std::vector<std::string> formats, notes;

  static void add_once(std::vector<std::string>& all, const std::string& text) {
    if (std::ranges::find(all, text) == all.end()) all.push_back(text);
  }
};

Ranks read_files(const TrafficOptions& options) {
  const int ranks = *options.ranks;
  Ranks all;
  for (int place = 0; place < int(options.files.size()); ++place) {
    const std::string& path = options.files[size_t(place)];
    Recording r = read_recording(path);
    for (const SeenCall& call : r.calls) r.ranks = std::max(r.ranks, call.group);
    require_input(r.ranks == 0 || r.ranks == ranks ||
                      (r.ranks < ranks && options.as->name == std::string("hsdp")),
                  "'", path, "' is of a run of ", plural(r.ranks, "rank"), ", but --ranks says ",
                  ranks);
    Ranks::add_once(all.formats, r.kind);
    for (const std::string& note : r.notes) Ranks::add_once(all.notes, note);
    for (const auto& [rank, steps] : r.steps) {
      const int of = rank < 0 ? place : rank;  // a file that does not name its rank
      require_input(of < ranks, "'", path, "' is of rank ", of, ", but --ranks says ", ranks,
                    ", which are 0 to ", ranks - 1);
      require_input(all.steps.emplace(of, steps).second, "'", path, "' is of rank ", of,
                    ", as another file is; give each rank once");
    }
    for (SeenCall& call : r.calls) {
      if (call.rank < 0) call.rank = place;
      all.calls[call.rank].push_back(std::move(call));
    }
  }
  return all;
}

// The calls of each step of a rank. Without marks the file holds --steps of them, of equal length.
std::vector<std::vector<SeenCall>> steps_of(int rank, const TrafficOptions& options, Ranks& all) {
  const std::vector<SeenCall>& calls = all.calls[rank];
  const int marked = all.steps[rank], steps = std::max(1, marked > 0 ? marked : options.steps);
  require_input(marked == 0 || options.steps == 0 || options.steps == marked, "the file marks ",
                plural(marked, "step"), ", but --steps says ", options.steps, "; leave it out");
  require_input(std::ssize(calls) >= steps || marked > 0, "there are ",
                plural(std::ssize(calls), "call"), " in all, fewer than --steps ", steps);
  std::vector<std::vector<SeenCall>> each(static_cast<size_t>(steps));
  for (size_t i = 0; i < calls.size(); ++i) {
    const int step = marked > 0 ? calls[i].step : int(i * size_t(steps) / calls.size());
    if (step >= 0)
      each[size_t(step)].push_back(calls[i]);
    else
      Ranks::add_once(all.notes, "calls outside the marked steps are not counted");
  }
  if (marked + options.steps == 0)
    Ranks::add_once(all.notes, "the file marks no steps: all of it is one (--steps K for K)");
  return each;
}

// Compares each step of each rank. A difference that not all of them have says which has it.
Json compare_all(Ranks& all, TrafficCase& c, const TrafficOptions& options) {
  std::vector<std::pair<Difference, std::string>> found;
  std::map<std::string, int64_t> times;
  Json rows = Json::array(), differences = Json::array();
  int64_t steps = 0;
  bool ok = true;
  for (const auto& [rank, calls] : all.calls) {
    c.marked = all.steps[rank] > 0;
    int number = 0;
    for (const auto& step : steps_of(rank, options, all)) {
      const TrafficVerdict verdict = compare_traffic(c, step);
      ++steps, ++number;
      for (const std::string& note : verdict.notes) Ranks::add_once(all.notes, note);
      for (const Difference& d : verdict.differences)
        if (times[d.text]++ == 0) found.push_back({d, str("step ", number, " of rank ", rank)});
      if (rank != all.calls.begin()->first) continue;
      rows = Json::array();  // of the last step of the first rank
      for (const TrafficOfPurpose& r : verdict.rows)
        rows.push_back({{"collective", r.collective},
                        {"purpose", r.purpose},
                        {"calls", r.calls},
                        {"planned_calls", r.planned_calls},
                        {"elements", r.elements},
                        {"planned_elements", r.planned_elements}});
    }
  }
  for (const auto& [d, where] : found) {
    const std::string only = times[d.text] < steps ? " (" + where + ", but not in all)" : "";
    differences.push_back({{"text", d.text + only}, {"harmless", d.harmless}});
    ok &= d.harmless;
  }
  return {{"schema", 1},
          {"command", "check traffic"},
          {"ok", ok},
          {"as", options.as->name},
          {"ranks", c.ranks},
          {"formats", all.formats},
          {"steps_compared", steps},
          {"traffic_per_step", rows},
          {"differences", differences},
          {"notes", all.notes}};
}

std::string as_count(const Json& value) { return with_commas(value); }

std::string traffic_text(const Json& document) {
  std::string text =
      str("a step of a rank, beside ", as_is(document["as"]), "\n") +
      table_text<Json>(document["traffic_per_step"], {{"collective", "/collective", as_is<Json>},
                                                      {"purpose", "/purpose", as_is<Json>},
                                                      {"calls", "/calls", as_count},
                                                      {"planned", "/planned_calls", as_count},
                                                      {"elements", "/elements", as_count},
                                                      {"planned", "/planned_elements", as_count}});
  for (const Json& d : document["differences"])
    text += (d["harmless"] ? "  harmless    " : "  difference  ") + as_is(d["text"]) + "\n";
  for (const Json& note : document["notes"]) text += "  note        " + as_is(note) + "\n";
  return printable(text) + (document["ok"] ? "as planned\n" : "not as planned\n");
}

int check_traffic(TrafficOptions& options) {
  if (options.files.empty()) throw UsageError("check traffic needs a FILE that a run has written");
  if (!options.as) throw UsageError("--as is missing: what the run is meant to do, such as fsdp2");
  if (!options.ranks) throw UsageError("--ranks is missing: the number of ranks of the run");
  if (options.units.empty() == !options.given("--model"))
    throw UsageError("say what the model is: --model NAME, or --units FILE with its parameters");
  options.source.ranks = *options.ranks;
  options.source.several_stages = true;
  LoadedConfig loaded = load_settings(options, *options.ranks);
  int64_t& reuse = loaded.config.overlap.max_reuse_distance;  // 0, if given, is not the default
  if (loaded.origins.contains("zero_optimization.stage3_max_reuse_distance") && reuse == 0)
    reuse = -1;
  TrafficCase c{options.units.empty() ? gpt_units(choose_model(options, loaded).model)
                                      : read_units(options.units),
                *options.as, loaded.config, *options.ranks};
  Ranks all = read_files(options);
  const Json document = compare_all(all, c, options);
  std::fputs((options.json ? json_text(document) : traffic_text(document)).c_str(), stdout);
  return document["ok"] ? kFine : kFailed;
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

}  // namespace

void add_check_traffic(CLI::App& check, Invocation& invocation) {
  static TrafficOptions options;
  Flags flags(check, invocation, "traffic",
              "collectives of a run beside the planned ones; names each difference",
              [] { return check_traffic(options); });
  const auto read_ranks = [](const std::string& text) { return read_count(text, 1, 1 << 20); };
  const auto list = [](std::vector<std::string>& into) {
    return [&into](const std::string& text) { into.push_back(text); };
  };
  std::string kinds;
  for (const SystemKind& kind : system_kinds()) kinds += str(" ", kind.name);
  flags.value("FILE", "", "trace, log or flight recorder; one or more", list(options.files),
              Flags::Takes::several);
  flags.add(
      "--as", "WHAT", options.as, [](const std::string& text) { return &read_system(text); },
      "what the run is meant to do:" + kinds);
  flags.add("--ranks", "N", options.ranks, read_ranks, "number of ranks of the run");
  flags.value("--model", "NAME", "a GPT: tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl",
              [](const std::string& text) {
                options.set("--model", "zerolab.model", gpt_names()[choose(text, gpt_names())]);
              });
  flags.name("--units", "FILE",
             "any model: name, shape, dtype and unit per line, as units.py writes them",
             options.units);
  flags.name("--config", "FILE", "a DeepSpeed JSON file with the run's settings",
             options.source.file);
  flags.value("--set", "KEY=VALUE",
              "one setting of such a file, such as gradient_accumulation_steps=A",
              list(options.source.sets), Flags::Takes::several);
  flags.add("--precision", "TYPE", options.source.precision, read_precision,
            "type of the parameters: fp32, bf16 or fp16 (default fp32)");
  flags.add("--steps", "K", options.steps, read_ranks,
            "how many steps a file holds that does not mark them (default 1)");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(kFooter);
}

}  // namespace zl::cli
