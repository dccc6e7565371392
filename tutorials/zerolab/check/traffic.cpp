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
  std::optional<int> steps;
};

// Calls by rank; a file that does not name its rank is that of its place.
struct Ranks {
  std::map<int, std::vector<SeenCall>> calls;
  std::map<int, int> steps;  // that the file marks
  std::vector<std::string> notes;
  std::string kinds;
};

Ranks read_files(const TrafficOptions& options, int ranks) {
  Ranks all;
  int place = 0;
  for (const std::string& path : options.files) {
    Recording recording = read_recording(path);
    require_input(recording.ranks == 0 || recording.ranks == ranks, "'", path, "' is of a run of ",
                  plural(recording.ranks, "rank"), ", but --ranks says ", ranks);
    if (all.kinds.find(recording.kind) == all.kinds.npos)
      all.kinds += (all.kinds.empty() ? "" : ", ") + recording.kind;
    for (const auto& [rank, steps] : recording.steps) {
      const int of = rank < 0 ? place : rank;
      require_input(of < ranks, "'", path, "' is of rank ", of, ", but --ranks says ", ranks,
                    ": ranks 0 to ", ranks - 1);
      require_input(!all.steps.contains(of), "'", path, "' is of rank ", of,
                    ", as another file is; give each rank once");
      all.steps[of] = steps;
    }
    for (SeenCall& call : recording.calls) {
      call.rank = call.rank < 0 ? place : call.rank;
      require_input(call.group <= ranks, "'", path, "' has ", call.name, " among ", call.group,
                    " ranks, but --ranks says ", ranks);
      all.calls[call.rank].push_back(std::move(call));
    }
    std::ranges::copy(recording.notes, std::back_inserter(all.notes));
    ++place;
  }
  return all;
}

// The calls of each step of a rank. Without marks the file holds --steps of them, of equal length.
std::vector<std::vector<SeenCall>> steps_of(const std::vector<SeenCall>& calls, int marked,
                                            const TrafficOptions& options, Ranks& all) {
  require_input(marked == 0 || !options.steps || *options.steps == marked, "the files mark ",
                plural(marked, "step"), ", but --steps says ", options.steps.value_or(0),
                "; leave it out");
  const int steps = marked > 0 ? marked : options.steps.value_or(1);
  std::vector<std::vector<SeenCall>> each;
  each.resize(size_t(steps));
  size_t outside = 0;
  if (marked > 0) {
    for (const SeenCall& call : calls)
      if (call.step >= 0)
        each[size_t(call.step)].push_back(call);
      else
        ++outside;
    if (outside > 0)
      all.notes.push_back(plural(int64_t(outside), "call") +
                          " outside the marked steps not counted");
    return each;
  }
  require_input(int64_t(calls.size()) >= steps, "there are ", plural(int64_t(calls.size()), "call"),
                " in all, fewer than --steps ", steps);
  for (size_t i = 0; i < calls.size(); ++i)
    each[i * size_t(steps) / calls.size()].push_back(calls[i]);
  if (!options.steps)
    all.notes.push_back("the file marks no steps: it is taken as one (--steps K for K)");
  return each;
}

struct Checked {
  std::vector<TrafficOfPurpose> rows;  // of the first rank and its last step
  std::vector<Difference> differences;
  std::vector<std::string> notes;
};

void add_once(std::vector<std::string>& all, const std::string& text) {
  if (std::ranges::find(all, text) == all.end()) all.push_back(text);
}

// Differences that not all steps of all ranks have say which do.
Checked check_all(Ranks& all, const TrafficCase& c, const TrafficOptions& options) {
  struct Where {
    Difference difference;
    int64_t times = 0;
    std::string first;
  };
  Checked checked;
  std::vector<Where> found;
  int64_t steps = 0;
  for (const auto& [rank, calls] : all.calls) {
    TrafficCase of_rank = c;
    of_rank.marked = all.steps[rank] > 0;
    int number = 0;
    for (const auto& step : steps_of(calls, all.steps[rank], options, all)) {
      ++steps, ++number;
      const TrafficVerdict verdict = compare_traffic(of_rank, step);
      if (rank == all.calls.begin()->first) checked.rows = verdict.rows;
      for (const std::string& note : verdict.notes) add_once(checked.notes, note);
      for (const Difference& d : verdict.differences) {
        auto same = std::ranges::find_if(
            found, [&](const Where& w) { return w.difference.text == d.text; });
        if (same == found.end())
          same = found.insert(found.end(), {d, 0, str("step ", number, " of rank ", rank)});
        ++same->times;
      }
    }
  }
  for (Where& w : found) {
    if (w.times < steps)
      w.difference.text += str(
          " (in ", w.first, w.times > 1 ? str(" and ", w.times - 1, " more") : "", "; not in all)");
    checked.differences.push_back(w.difference);
  }
  for (const std::string& note : all.notes) add_once(checked.notes, note);
  return checked;
}

Json document_of(const Checked& checked, const TrafficOptions& options, const Ranks& all, bool ok) {
  Json rows = Json::array(), differences = Json::array();
  for (const TrafficOfPurpose& r : checked.rows)
    rows.push_back({{"collective", r.collective},
                    {"purpose", r.purpose},
                    {"calls", r.calls},
                    {"planned_calls", r.planned_calls},
                    {"elements", r.elements},
                    {"planned_elements", r.planned_elements}});
  for (const Difference& d : checked.differences)
    differences.push_back({{"text", d.text}, {"harmless", d.harmless}});
  Json ranks = Json::array();
  for (const auto& [rank, calls] : all.calls) ranks.push_back(rank);
  return {{"schema", 1},
          {"command", "check traffic"},
          {"ok", ok},
          {"as", options.as->name},
          {"format", all.kinds},
          {"ranks", *options.ranks},
          {"ranks_in_files", ranks},
          {"traffic_per_step", rows},
          {"differences", differences},
          {"notes", checked.notes}};
}

std::string as_count(const Json& value) { return with_commas(value); }

std::string text_of(const Json& document) {
  std::string text = printable(str(document["format"].get<std::string>(), " beside ",
                                   document["as"].get<std::string>(), ", per rank and step\n"));
  text +=
      table_text<Json>(document["traffic_per_step"], {{"collective", "/collective", as_is<Json>},
                                                      {"purpose", "/purpose", as_is<Json>},
                                                      {"calls", "/calls", as_count},
                                                      {"planned", "/planned_calls", as_count},
                                                      {"elements", "/elements", as_count},
                                                      {"planned", "/planned_elements", as_count}});
  for (const Json& d : document["differences"])
    text += printable((d["harmless"] ? "  harmless    " : "  difference  ") +
                      d["text"].get<std::string>()) +
            "\n";
  for (const Json& note : document["notes"])
    text += printable("  note        " + note.get<std::string>()) + "\n";
  return text + (document["ok"] ? "as planned" : "not as planned") +
         (document["ok"] && !document["differences"].empty() ? ", but for what is harmless\n"
                                                             : "\n");
}

int check_traffic(TrafficOptions& options) {
  if (options.files.empty()) throw UsageError("check traffic needs a FILE that a run has written");
  if (!options.as) throw UsageError("--as is missing: what the run is meant to do, such as fsdp2");
  if (!options.ranks) throw UsageError("--ranks is missing: the number of ranks of the run");
  const bool gpt = options.given("--model") || !options.source.file.empty();
  if (options.units.empty() && !gpt && !options.n_embd)
    throw UsageError("name the model with --model, or its parameters with --units FILE");
  options.source.ranks = *options.ranks;
  options.source.several_stages = true;
  const LoadedConfig loaded = load_settings(options, *options.ranks);
  const TrafficCase c{options.units.empty() ? gpt_units(choose_model(options, loaded).model)
                                            : read_units(options.units),
                      *options.as, loaded.config, *options.ranks};
  Ranks all = read_files(options, *options.ranks);
  const Checked checked = check_all(all, c, options);
  const bool ok = std::ranges::all_of(checked.differences, &Difference::harmless);
  const Json document = document_of(checked, options, all, ok);
  std::fputs((options.json ? json_text(document) : text_of(document)).c_str(), stdout);
  return ok ? kFine : kFailed;
}

constexpr const char* kFooter =
    R"(FILE is what a run wrote, of one rank or of several: a trace of PyTorch's profiler (.json, .json.gz;
record_shapes=True), NCCL's log (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL), PyTorch's flight recorder as
JSON, or a trace of 'zerolab train --trace'.

Examples:
  zerolab check traffic trace.json.gz --as fsdp2 --ranks 2 --model gpt2
  zerolab check traffic rank*.log --as torch-ddp --ranks 8 --units units.txt --steps 10
  zerolab check traffic fr.json --as zero2 --ranks 4 --model tiny --set gradient_accumulation_steps=4

Exit codes: 0 as planned, or but for numbers such as norm and loss; 1 a difference, 2 usage)";

}  // namespace

void add_run_settings(Flags& flags, RunOptions& o) {
  flags.name("--config", "FILE", "a DeepSpeed JSON file with the settings of the run",
             o.source.file);
  flags.value(
      "--set", "KEY=VALUE",
      "one setting of such a file: gradient_accumulation_steps=A,\nbf16.enabled=true, …; may be "
      "given again",
      [&o](const std::string& text) {
        require_input(text.find('=') % text.npos > 0, "'", text, "' is not KEY=VALUE");
        o.source.sets.push_back(text);
      },
      Flags::Takes::several);
  flags.value("--precision", "TYPE", "type of the parameters: fp32, bf16 or fp16 (default fp32)",
              [&o](const std::string& text) { o.source.precision = read_precision(text); });
  flags.value("--model", "NAME", "tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl",
              [&o](const std::string& text) {
                o.set("--model", "zerolab.model", gpt_names()[choose(text, gpt_names())]);
              });
}

void add_check_traffic(CLI::App& check, Invocation& invocation) {
  static TrafficOptions options;
  Flags flags(check, invocation, "traffic",
              "collectives of a run beside the planned ones; names each difference",
              [] { return check_traffic(options); });
  flags.value(
      "FILE", "", "trace, log or flight recorder; one or more",
      [](const std::string& text) { options.files.push_back(text); }, Flags::Takes::several);
  std::string kinds;
  for (const SystemKind& kind : system_kinds())
    kinds += (kinds.empty() ? "" : ", ") + std::string(kind.name);
  flags.value("--as", "WHAT", "what the run is meant to do: " + kinds,
              [](const std::string& text) { options.as = &read_system(text); });
  flags.value("--ranks", "N", "number of ranks of the run",
              [](const std::string& text) { options.ranks = int(read_count(text, 1, 1 << 20)); });
  add_run_settings(flags, options);
  flags.name("--units", "FILE",
             "instead of --model: name, shape, dtype and unit per line, as units.py writes",
             options.units);
  flags.value("--steps", "K", "how many steps the files hold, if they do not mark them (default 1)",
              [](const std::string& text) { options.steps = int(read_count(text, 1, 1'000'000)); });
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(kFooter);
}

}  // namespace zl::cli
