// zerolab bench clock: the planner's clock beside what others measured and published.

#include <nlohmann/json.hpp>

#include "stages/predict/ground_truth/clock_errors.h"
#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ClockBenchOptions {
  std::string csv;  // the file; "": none
  bool force = false, json = false;
};

Json error_json(const ErrorSum& error) {
  if (error.count == 0) return nullptr;
  return {{"rows", error.count}, {"mean", error.mean()}, {"largest", error.largest}};
}

Json sizes_json(const CallErrors& errors) {
  Json sizes = Json::array();
  for (size_t i = std::size(kSizes); i-- > 0;) {
    Json row{{"from_bytes", kSizes[i]}};
    row["error"] = error_json(errors.by_size[i]);
    sizes.push_back(row);
  }
  return sizes;
}

Json collectives_json(const std::vector<CallErrors>& tables) {
  Json rows = Json::array();
  for (const CallErrors& t : tables)
    rows.push_back({{"machine", t.machine},
                    {"system", t.system},
                    {"collective", name(t.collective)},
                    {"ranks", t.ranks},
                    {"nodes", t.nodes},
                    {"own_table", error_json(t.own)},
                    {"spec_sheet", sizes_json(t)}});
  const CallErrors all = total(tables);
  return {{"tables", rows},
          {"total", {{"own_table", error_json(all.own)}, {"spec_sheet", sizes_json(all)}}}};
}

Json set_json(const SetErrors& set) {
  return {{"spec_sheet", error_json(set.spec_sheet)},
          {"shipped_fitted", error_json(set.fitted)},
          {"shipped_held_out", error_json(set.held_out)},
          {"calibrated", error_json(set.calibrated)}};
}

Json steps_json(const std::vector<SetErrors>& sets) {
  Json rows = Json::array();
  for (const SetErrors& set : sets) {
    const PublishedStep& first = *set.calibrated_on;
    Json row{{"program", set.program},
             {"machine", set.machine},
             {"unlike", set.unlike.empty() ? Json(nullptr) : Json(set.unlike)},
             {"calibrated_on",
              {{"model", first.model},
               {"window", first.shape.block_size},
               {"ranks", first.ranks},
               {"stage", name(first.stage)},
               {"micro_batch", first.micro_batch}}}};
    row.update(set_json(set));
    rows.push_back(row);
  }
  return {{"sets", rows}, {"total", set_json(total(sets))}};
}

Json order_json(const StepOrder& order) {
  const auto pairs = [](const OrderErrors& e) {
    return Json{{"pairs", e.pairs}, {"right", e.right}};
  };
  return {{"noise", kNoise},
          {"stages", pairs(order.stages)},
          {"machines", pairs(order.machines)},
          {"ranks", pairs(order.ranks)}};
}

// ---- text --------------------------------------------------------------------------------------

std::string percent(const Json& error) {
  return error.is_null() ? "-" : format("%.1f %%", 100 * error["mean"].get<double>());
}

void add_sizes(std::vector<std::string>& cells, const Json& sizes) {
  for (const Json& size : sizes) cells.push_back(percent(size["error"]));
}

std::string collectives_text(const Json& collectives) {
  TextTable table;
  table.row({"system", "machine", "collective", "ranks", "nodes", "own table", "256 MiB up",
             "16 MiB up", "1 MiB up", "less"});
  for (const Json& t : collectives["tables"]) {
    std::vector<std::string> cells = {t["system"],       t["machine"],
                                      t["collective"],   t["ranks"].dump(),
                                      t["nodes"].dump(), percent(t["own_table"])};
    add_sizes(cells, t["spec_sheet"]);
    table.row(cells);
  }
  std::vector<std::string> all = {"all", "", "",
                                  "",    "", percent(collectives["total"]["own_table"])};
  add_sizes(all, collectives["total"]["spec_sheet"]);
  table.row(all);
  return table.text();
}

void add_ways(std::vector<std::string>& cells, const Json& set) {
  for (const char* way : {"spec_sheet", "shipped_fitted", "shipped_held_out", "calibrated"})
    cells.push_back(percent(set[way]));
}

std::string steps_text(const Json& steps) {
  TextTable table;
  table.row({"program", "machine", "steps", "data sheet", "fitted", "held out", "calibrated",
             "on ranks"});
  std::string unlike;
  for (const Json& set : steps["sets"]) {
    const bool modelled = set["unlike"].is_null();
    const std::string program = set["program"];
    std::vector<std::string> cells = {modelled ? program : program + " *", set["machine"],
                                      set["spec_sheet"]["rows"].dump()};
    add_ways(cells, set);
    cells.push_back(set["calibrated_on"]["ranks"].dump());
    table.row(cells);
    if (!modelled) unlike += "  * " + program + ": " + set["unlike"].get<std::string>() + "\n";
  }
  const Json& all = steps["total"];
  std::vector<std::string> cells = {"all but *", "", all["spec_sheet"]["rows"].dump()};
  add_ways(cells, all);
  table.row(cells);
  return table.text() + unlike;
}

std::string order_text(const Json& order) {
  const auto pairs = [&](const char* what) {
    return str(order[what]["right"], " of ", order[what]["pairs"]);
  };
  return str("Order of two published steps that differ in one thing, and by ",
             format("%.0f %%", 100 * order["noise"].get<double>()), " or more:\n  stage: right in ",
             pairs("stages"), "\n  machine: ", pairs("machines"),
             "\n  number of ranks: ", pairs("ranks"), "\n");
}

std::string clock_text(const Json& report) {
  return str(
      "Mean error of predicted times of collectives. own table: three terms fitted to even\n"
      "powers of two, tested on odd ones. Then from the machine's data sheet, by size.\n\n",
      collectives_text(report["collectives"]), "\nMean error of predicted times of steps.\n\n",
      steps_text(report["steps"]), "\n", order_text(report["order"]),
      "'zerolab bench clock --help' explains the columns.\n");
}

// ---- rows --------------------------------------------------------------------------------------

std::string csv(const std::vector<StepPrediction>& predictions) {
  std::string text =
      "program,machine,model,case,window,ranks,stage,micro_batch,accumulation,recomputed,"
      "measured_seconds,spec_sheet,shipped,calibrated,fitted,calibrates\n";
  for (const StepPrediction& p : predictions) {
    const PublishedStep& s = *p.step;
    text += str(s.program, ",", s.machine, ",", s.model, ",", s.variant, ",", s.shape.block_size,
                ",", s.ranks, ",", name(s.stage), ",", s.micro_batch, ",", s.accumulation, ",",
                s.recomputed);
    for (const double seconds : {s.seconds, p.spec_sheet, p.shipped, p.calibrated})
      text += "," + digits(seconds, 6);
    text += str(",", p.fitted, ",", p.calibrates, "\n");
  }
  return text;
}

int bench_clock(const ClockBenchOptions& options) {
  require_input(!options.force || !options.csv.empty(),
                "--force replaces the file of --csv, which is not given");
  if (!options.csv.empty()) require_output_file(options.csv, "", options.force);
  const std::vector<StepPrediction> predictions = predict_steps(published_steps(), [] {
    if (interrupt_requested()) throw Interrupted();
  });
  if (!options.csv.empty()) {
    const std::string table = csv(predictions);
    PendingFile file(options.csv);
    file.write(table.data(), table.size());
    file.commit();
  }
  print_results(Json{{"schema", 1},
                     {"command", "bench clock"},
                     {"ok", true},
                     {"collectives", collectives_json(collective_errors(published_calls()))},
                     {"steps", steps_json(set_errors(predictions))},
                     {"order", order_json(step_order(predictions))}},
                options.json, clock_text);
  return 0;
}

constexpr const char* kClockFooter =
    R"(The published times are in stages/predict/ground_truth, with their sources and what was left
out. An error is |predicted / measured - 1|; a cell is its mean.

Collectives: "own table" is what a machine's file with measured collectives reaches. The other
columns take the file without them: the links' data sheet and the algorithms of NCCL.

Steps:
  data sheet  the GPU's peaks, with the shares of them that another kind of GPU reaches: H100's for
              A100, A100's for all others. Nothing is measured on this kind.
  fitted      the shipped machine, on the steps that its shares were fitted to: those of
              llm-foundry on 8 and 16 GPUs
  held out    the shipped machine, on all other steps
  calibrated  as data sheet, with one factor on all kernels, from one step of the set: of those with
              the fewest ranks and of these the set's usual window and stage, the first
A model of Llama's kind is replaced by a GPT of the same width, heads and vocabulary, with as many
layers as hold the parameters of its blocks. If a share of the blocks is recomputed, the time is
between those of no block and of all blocks.

Examples:
  zerolab bench clock
  zerolab bench clock --csv steps.csv

Exit codes: 0 fine, 2 usage, 74 FILE cannot be written, 130 Ctrl-C)";

}  // namespace

void add_bench_clock(CLI::App& bench, Invocation& invocation) {
  static ClockBenchOptions options;
  Flags flags(bench, invocation, "clock", "the planner's clock beside published times",
              [] { return bench_clock(options); });
  flags.value("--csv", "FILE", "also write one line per step to FILE", [](const auto& text) {
    require_input(!text.empty(), "the name is empty");
    options.csv = text;
  });
  flags.toggle("--force", "replace FILE if it exists", options.force);
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
  flags.footer(kClockFooter);
}

}  // namespace zl::cli
