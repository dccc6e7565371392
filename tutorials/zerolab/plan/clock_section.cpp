#include "tutorials/zerolab/plan/clock_section.h"

#include <nlohmann/json.hpp>

#include "stages/train/gpt_spec.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kOthers = 3;      // settings that --advise shows beside the fastest
constexpr int64_t kMostRows = 64;  // of a micro-batch that it tries

double seconds_of(const Json& step) { return step["seconds_per_step"]; }

// A step on the machine: its times, and whether what it needs is there.
Json timed(const ClockPlan& plan, const GptTrainingSpec& spec) {
  if (interrupt_requested()) throw Interrupted();
  const StepTime time = clock_step(spec, plan.machine, plan.flags.stragglers);
  const ClockTimes& t = time.times;
  const Shortage lacks = shortage(time, spec, plan.machine);
  Json json{{"seconds_per_step", t.seconds},
            {"compute_seconds", t.compute},
            {"launch_seconds", t.launches},
            {"communication_seconds", t.communication},
            {"exposed_communication_seconds", t.exposed},
            {"tokens_per_second_per_rank", time.tokens_per_second()},
            {"mfu", time.mfu},
            {"peak_bytes", time.device_peak},
            {"fits", lacks == Shortage::none},
            {"kernel_seconds", time.kernels},
            {"collective_seconds", time.calls}};
  if (lacks != Shortage::none) json["lacks"] = name(lacks);
  return json;
}

// The fastest stage that fits, unless the clock cannot tell it from others.
std::string choice(const Json& stages, double error) {
  std::vector<Json> fit;
  std::ranges::copy_if(stages, std::back_inserter(fit),
                       [](const Json& s) { return bool(s["fits"]); });
  if (fit.empty()) return "No stage fits.\n";
  std::ranges::stable_sort(fit, {}, seconds_of);
  const double least = seconds_of(fit[0]);
  std::string text = str(as_is(fit[0]["stage"]), " is the fastest that fits, with ",
                         as_seconds<Json>(least), " for a step");
  double longer = 0;
  size_t i = 1;
  for (; i < fit.size() && seconds_of(fit[i]) / least - 1 < error; ++i) {
    text += (i == 1 ? ", but the clock cannot tell it from " : ", ") + as_is(fit[i]["stage"]);
    longer = seconds_of(fit[i]) / least - 1;
  }
  return text + (i == 1 ? ".\n"
                        : str(": at most ", as_percent<Json>(longer),
                              " longer, which is within the expected error.\n"));
}

std::string clock_text(const ClockPlan& plan, const Json& stages, const ExpectedError& expected) {
  const Machine& m = plan.machine;
  const int nodes = (plan.spec.ranks + m.ranks_per_node - 1) / m.ranks_per_node;
  StageColumns table(stages, "");
  table.row("a step", "/seconds_per_step", as_seconds<Json>);
  table.row("  kernels and launches", "/compute_seconds", as_seconds<Json>);
  table.row("    waiting for launches", "/launch_seconds", as_seconds<Json>);
  table.row("  communication", "/communication_seconds", as_seconds<Json>);
  table.row("    exposed", "/exposed_communication_seconds", as_seconds<Json>);
  table.row("tokens per second and rank", "/tokens_per_second_per_rank", short_number);
  table.row("MFU", "/mfu", as_percent<Json>);
  std::string text =
      str("A step on ", m.name, " (", m.title, "), ", plural(plan.spec.ranks, "rank"), " in ",
          plural(nodes, "node"), ":\n\n", table.text(), "\n", choice(stages, expected.error));
  for (const Json& stage : stages)
    if (!stage["fits"])
      text +=
          str(as_is(stage["stage"]), " does not fit: too little ", as_is(stage["lacks"]), ".\n");
  return text + str("Expected error of these times: ", as_percent<Json>(expected.error),
                    expected.order_only ? "; on so many ranks trust only their order" : "",
                    " (tutorials/reference/clock.md).\n");
}

// What --advise tries: of all micro-batches with the same tokens per step the fastest that fits, or
// else the smallest.
Json best_micro_batch(const ClockPlan& plan, StageKind stage, Recompute recompute,
                      OffloadDevice offload) {
  GptTrainingSpec spec = plan.spec;
  const GptTrainingSpec model = gpt_spec(spec.model, spec.window, recompute);
  spec.make_model = model.make_model;
  spec.checkpointed_rows = model.checkpointed_rows;
  spec.engine.stage = stage;
  spec.engine.offload_optimizer = offload;
  set_overlap(spec.engine, plan.flags.overlap.value_or(true));
  const int64_t rows = spec.micro_batch * spec.engine.accumulation;
  Json best;
  for (int64_t B = 1; B <= std::min(rows, kMostRows); ++B) {
    if (rows % B != 0) continue;
    spec.micro_batch = B, spec.engine.accumulation = rows / B;
    Json step{{"stage", name(stage)},
              {"recompute", name(recompute)},
              {"offload_optimizer", name(offload)},
              {"micro_batch", B},
              {"accumulation", rows / B}};
    step.update(timed(plan, spec));
    const bool fits = step["fits"];
    if (best.is_null() || (fits && seconds_of(step) < seconds_of(best))) best = std::move(step);
    if (!fits) break;  // larger ones need more
  }
  for (const char* key : {"kernel_seconds", "collective_seconds"}) best.erase(key);
  return best;
}

// Why these settings lose against the fastest that fit; their times say where.
std::string reason(const Json& step, const Json& best, double error) {
  if (!step["fits"]) return "too little " + step["lacks"].get<std::string>();
  const double longer = seconds_of(step) - seconds_of(best);
  return str(milliseconds(longer), " ms longer",
             longer < error * seconds_of(best) ? "; within the expected error" : "");
}

// --advise: the settings that fit and take least time (null: none fit), and three others with the
// reason why they lose; if none fit, those that need least.
Json advise(const ClockPlan& plan, double error) {
  std::vector<StageKind> stages = plan.stages;
  if (plan.any_of_them && plan.machine.fills_nodes(plan.spec.ranks) &&
      !plan.spec.engine.reproducible)
    stages.push_back(StageKind("hsdp"));
  std::vector<Json> tried;
  std::exception_ptr refused;  // a stage may refuse some settings
  for (const StageKind stage : stages)
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const OffloadDevice offload : {OffloadDevice::none, OffloadDevice::cpu}) {
        const bool can = shards_optimizer(stage) && plan.machine.host.link_bandwidth > 0;
        if (offload == OffloadDevice::cpu && !can) continue;
        try {
          tried.push_back(best_micro_batch(plan, stage, recompute, offload));
        } catch (const InputError&) {
          refused = std::current_exception();
        }
      }
  if (tried.empty()) std::rethrow_exception(refused);
  const auto fits = [](const Json& s) -> bool { return s["fits"]; };
  const char* by = std::ranges::any_of(tried, fits) ? "seconds_per_step" : "peak_bytes";
  std::ranges::stable_sort(tried, {}, [by](const Json& s) -> double { return s[by]; });
  Json advice{{"fastest", nullptr}, {"others", Json::array()}};
  if (const auto best = std::ranges::find_if(tried, fits); best != tried.end()) {
    advice["fastest"] = *best;
    tried.erase(best);
  }
  tried.resize(std::min(tried.size(), kOthers));
  for (Json& other : tried) {
    other["reason"] = reason(other, advice["fastest"], error);
    advice["others"].push_back(std::move(other));
  }
  return advice;
}

double read_deviation(const std::string& text) {
  const double deviation = read_real(text);
  require_input(deviation <= 2, "'", text, "' is too large; try 0.02");
  return deviation;
}

}  // namespace

void add_clock_flags(Flags& flags, ClockFlags& o) {
  const char* heading = "Seconds of a step on a machine that need not be here";
  flags.group(heading);
  flags.name("--machine", "NAME",
             "one of --machines, or a description in a file such as ./machine.json\f"
             "Its GPUs imply --as cuda, their memory --device-memory, and --ranks-per-node changes "
             "its\nnodes",
             o.machine);
  flags.toggle("--machines", "list the machines, and end", o.list);
  flags.toggle(
      "--advise",
      "the fastest settings that fit, and why the next three lose\f"
      "They are stage, recomputation, offload and micro-batch, with the same tokens per\n"
      "step. Without --stages it tries the four, and hsdp on several full nodes; --overlap "
      "off\ntries all without overlap",
      o.advise);
  flags.group(heading, true);
  flags.add(
      "--overlap", "on|off", o.overlap,
      [](const std::string& text) {
        return choose(text, {"off", "on"}) == 1;
      },
      "communication beside computation, with the next unit prefetched, or neither\n"
      "(default: as configured, which is off)");
  flags.add("--stragglers", "S", o.stragglers.deviation, read_deviation,
            "ranks differ: kernels of a rank take exp(S z) times as long, z standard normal\n"
            "(default 0); every call waits for the slowest rank");
  for (const char* flag : {"--overlap", "--advise", "--stragglers"}) flags.needs(flag, "--machine");
}

Machine planned_machine(const ClockFlags& options, int64_t ranks_per_node, int ranks) {
  Machine machine = find_machine(options.machine);
  if (ranks_per_node == 0) return machine;
  machine.ranks_per_node = int(ranks_per_node);
  if (ranks > ranks_per_node && !machine.fills_nodes(ranks))
    throw UsageError(str("--ranks-per-node ", ranks_per_node, " does not divide ", ranks,
                         " ranks into full nodes"));
  return machine;
}

void add_clock(const ClockPlan& plan, PlanReport& report) {
  const Machine& m = plan.machine;
  const ExpectedError expected = expected_step_error(machine_data(m), plan.spec.ranks);
  Json document = Json::parse(report.json);
  document["expected_error"] = {{"share", expected.error}, {"order_only", expected.order_only}};
  document["machine"] = {
      {"name", m.name}, {"title", m.title}, {"ranks_per_node", m.ranks_per_node}};
  report.fits = false;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    Json& stage = document["stages"][i];
    GptTrainingSpec spec = plan.spec;
    spec.engine.stage = plan.stages[i];
    stage.update(timed(plan, spec));
    report.fits |= bool(stage["fits"]);
  }
  document["ok"] = report.fits;
  report.text += clock_text(plan, document["stages"], expected);
  if (plan.flags.advise) {
    const Json& advice = document["advice"] = advise(plan, expected.error);
    Json rows = advice["others"];
    if (const Json& fastest = advice["fastest"]; !fastest.is_null())
      rows.insert(rows.begin(), fastest);
    report.text +=
        str("\n", plan.flags.overlap.value_or(true) ? "With" : "Without", " overlap, ",
            advice["fastest"].is_null() ? "nothing fits; what needs least:\n\n"
                                        : "the fastest that fits, and why others lose:\n\n",
            table_text<Json>(rows, {{"stage", "/stage", as_is},
                                    {"recompute", "/recompute", as_is},
                                    {"offload optimizer", "/offload_optimizer", as_is},
                                    {"micro-batch", "/micro_batch", as_is},
                                    {"accumulation", "/accumulation", as_is},
                                    {"a step", "/seconds_per_step", as_seconds},
                                    {"kernels", "/compute_seconds", as_seconds},
                                    {"exposed", "/exposed_communication_seconds", as_seconds},
                                    {"peak", "/peak_bytes", as_bytes},
                                    {"reason", "/reason", as_is}}));
  }
  report.json = json_text(document);
}

}  // namespace zl::cli
