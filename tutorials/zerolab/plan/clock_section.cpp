#include "tutorials/zerolab/plan/clock_section.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "stages/train/gpt_spec.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds_of(double seconds) { return milliseconds(seconds) + " ms"; }
std::string percent(double share) { return format("%.1f %%", 100 * share); }

constexpr size_t kOthers = 3;      // settings that --advise shows beside the fastest
constexpr int64_t kMostRows = 64;  // of a micro-batch that it tries

// A part of a machine that could have twice the speed; in JSON, and in a sentence.
enum Part { kKernels, kLinks, kLaunches, kCopies };
constexpr struct {
  const char *name, *limits, *better;
} kParts[] = {{"kernels", "the kernels limit it", "kernels of twice the speed"},
              {"links", "communication limits it", "links of twice the speed"},
              {"launches", "the host's launches limit it", "launches of half the time"},
              {"copies", "copies and work on the host limit it", "those of twice the speed"}};

Machine faster(Machine m, Part part) {
  RankMachine& rank = m.rank;
  Host& host = m.host;
  const std::vector<double*> rates[] = {
      {&rank.f32_flops, &rank.half_flops, &rank.memory_bandwidth, &rank.vector_rate},
      {&m.link.bandwidth, &m.network.bandwidth},
      {},
      {&host.link_bandwidth, &host.memory_bandwidth, &host.disk_read, &host.disk_write}};
  for (double* rate : rates[part]) *rate *= 2;
  if (part == kLaunches) rank.launch /= 2;
  if (part == kKernels)
    for (KernelTimes& k : rank.kernels)
      for (KernelTimes::Point& p : k.points) p.seconds /= 2;
  if (part == kLinks) {
    m.network.hop /= 2;
    for (CollectiveRow& row : m.collectives)
      row.terms = {row.terms.alpha / 2, row.terms.root / 2, row.terms.bus * 2};
  }
  return m;
}

Json times_json(const StepTime& time) {
  const ClockTimes& t = time.times;
  return {{"seconds_per_step", t.seconds},
          {"compute_seconds", t.compute},
          {"launch_seconds", t.launches},
          {"communication_seconds", t.communication},
          {"exposed_communication_seconds", t.exposed},
          {"tokens_per_second_per_rank", time.tokens_per_second()},
          {"mfu", time.mfu}};
}
double seconds_of(const Json& step) { return step["seconds_per_step"]; }

// A step on the machine: its times, and whether what it needs is there.
Json timed(const ClockPlan& plan, const GptTrainingSpec& spec) {
  if (interrupt_requested()) throw Interrupted();
  const StepTime time = clock_step(spec, plan.machine, plan.flags.stragglers);
  const Shortage lacks = shortage(time, spec, plan.machine);
  Json json = times_json(time);
  json.update({{"peak_bytes", time.device_peak},
               {"fits", lacks == Shortage::none},
               {"kernel_seconds", time.kernels},
               {"collective_seconds", time.calls}});
  if (lacks != Shortage::none) json["lacks"] = name(lacks);
  return json;
}

// What the clock says of a stage: its keys of the document.
Json clock_stage(const ClockPlan& plan, StageKind stage) {
  GptTrainingSpec spec = plan.spec;
  spec.engine.stage = stage;
  const auto step = [&](const Machine& machine) {
    return clock_step(spec, machine, plan.flags.stragglers);
  };
  Json json = timed(plan, spec);
  double least = std::numeric_limits<double>::infinity();
  for (const Part part : {kKernels, kLinks, kLaunches, kCopies})
    if (const double s = step(faster(plan.machine, part)).times.seconds; s < least) {
      least = s;
      json["limit"] = {{"part", kParts[part].name}, {"seconds_per_step_at_twice_the_speed", s}};
    }
  for (const bool on : {true, false}) {
    set_overlap(spec.engine, on);
    json["overlap"][on ? "on" : "off"] = times_json(step(plan.machine));
  }
  return json;
}

// Whether the stage fits, what limits its step, and what a machine would bring that is better
// there.
std::string verdict(const Json& stage) {
  const double seconds = stage["seconds_per_step"], launches = stage["launch_seconds"],
               better = stage["limit"]["seconds_per_step_at_twice_the_speed"],
               spent[] = {stage["compute_seconds"].get<double>() - launches,
                          stage["exposed_communication_seconds"], launches, 0};
  const auto part =
      std::ranges::find(kParts, stage["limit"]["part"], [](const auto& p) { return Json(p.name); });
  const double share = spent[part - kParts] / seconds;
  return str(
      stage["stage"].get<std::string>(), ": ", milliseconds_of(seconds), ", ",
      stage["fits"] ? "fits" : "does not fit: too little " + stage["lacks"].get<std::string>(),
      "; ",
      better > 0.99 * seconds
          ? "nothing limits it alone: no part at twice the speed would bring 1 %"
          : str(part->limits, share > 0 ? " (" + percent(share) + ")" : "", ", ", part->better,
                " would bring ", milliseconds_of(better)),
      ".\n");
}

// The fastest stage that fits, unless the clock cannot tell it from others.
std::string choice(const Json& stages, double error) {
  std::vector<std::pair<double, std::string>> fit;
  for (const Json& s : stages)
    if (s["fits"]) fit.emplace_back(s["seconds_per_step"], s["stage"]);
  if (fit.empty()) return "No stage fits.\n";
  std::ranges::stable_sort(fit, {}, &std::pair<double, std::string>::first);
  const auto& [least, first] = fit[0];
  std::string others;
  double longer = 0;
  for (size_t i = 1; i < fit.size() && fit[i].first / least - 1 < error; ++i) {
    others += (i == 1 ? "" : ", ") + fit[i].second;
    longer = fit[i].first / least - 1;
  }
  const std::string with =
      " is the fastest that fits, with " + milliseconds_of(least) + " for a step";
  return others.empty()
             ? str("Take ", first, ": it", with, ".\n")
             : str(first, with, ", but the clock cannot tell it from ", others, ": at most ",
                   percent(longer), " longer, which is within the expected error.\n");
}

std::string clock_text(const ClockPlan& plan, const Json& stages, const ExpectedError& expected) {
  const Machine& m = plan.machine;
  const int nodes = (plan.spec.ranks + m.ranks_per_node - 1) / m.ranks_per_node;
  StageColumns table(stages, "");
  table.row("a step", "/seconds_per_step", milliseconds_of);
  table.row("  kernels and launches", "/compute_seconds", milliseconds_of);
  table.row("    waiting for launches", "/launch_seconds", milliseconds_of);
  table.row("  communication", "/communication_seconds", milliseconds_of);
  table.row("    exposed", "/exposed_communication_seconds", milliseconds_of);
  table.row("a step with overlap", "/overlap/on/seconds_per_step", milliseconds_of);
  table.row("a step without overlap", "/overlap/off/seconds_per_step", milliseconds_of);
  table.row("tokens per second and rank", "/tokens_per_second_per_rank", short_number);
  table.row("MFU", "/mfu", percent);
  std::string text =
      str("\nA step on ", m.name, " (", m.title, "), ", plural(plan.spec.ranks, "rank"), " in ",
          plural(nodes, "node"), ":\n\n", table.text(), "\n", choice(stages, expected.error));
  for (const Json& stage : stages) text += verdict(stage);
  return text + str("Expected error of these times: ", percent(expected.error),
                    expected.order_only ? "; on so many ranks trust only their order" : "",
                    " (tutorials/reference/clock.md).\n");
}

// Makes nodes the groups of a variant. False: they are not several full nodes. hsdp may have
// another number of replicas, which must divide the ranks.
bool group_ranks(GptTrainingSpec& spec, const Machine& machine) {
  const int64_t replicas = spec.engine.replicas;
  if (file_of(spec.engine.stage).groups == VariantGroups::none) return true;
  if (spec.engine.stage == StageKind("hsdp") && replicas > 0) return spec.ranks % replicas == 0;
  spec.engine.ranks_per_node = machine.ranks_per_node;
  return machine.fills_nodes(spec.ranks);
}

// --sweep: a step of each stage on each number of ranks; without those that cannot be grouped.
Json sweep(const ClockPlan& plan) {
  Json rows = Json::array();
  for (const int ranks : plan.flags.sweep_ranks) {
    const ExpectedError expected = expected_step_error(machine_data(plan.machine), ranks);
    for (const StageKind stage : plan.stages) {
      GptTrainingSpec spec = plan.spec;
      spec.ranks = ranks;
      spec.engine.stage = stage;
      if (!group_ranks(spec, plan.machine)) continue;
      Json& row = rows.emplace_back(Json{{"ranks", ranks},
                                         {"stage", name(stage)},
                                         {"expected_error", expected.error},
                                         {"order_only", expected.order_only}});
      row.update(timed(plan, spec));
    }
  }
  return rows;
}

// What --advise tries. Of all micro-batches with the same tokens per step it takes the fastest that
// fits, or else the smallest.
struct Settings {
  StageKind stage;
  Recompute recompute;
  OffloadDevice offload;
};
Json best_micro_batch(const ClockPlan& plan, const Settings& settings) {
  GptTrainingSpec spec = plan.spec;
  const GptTrainingSpec model = gpt_spec(spec.model, spec.window, settings.recompute);
  spec.make_model = model.make_model;
  spec.checkpointed_rows = model.checkpointed_rows;
  spec.engine.stage = settings.stage;
  spec.engine.offload_optimizer = settings.offload;
  set_overlap(spec.engine, plan.flags.overlap.value_or(true));
  const int64_t rows = spec.micro_batch * spec.engine.accumulation;
  Json best;
  for (int64_t B = 1; B <= std::min(rows, kMostRows); ++B) {
    if (rows % B != 0) continue;
    spec.micro_batch = B, spec.engine.accumulation = rows / B;
    Json step{{"stage", name(settings.stage)},
              {"recompute", name(settings.recompute)},
              {"offload_optimizer", name(settings.offload)},
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

// Why these settings lose against the fastest that fit.
std::string reason(const Json& step, const Json& best, double error) {
  if (!step["fits"]) return "too little " + step["lacks"].get<std::string>();
  const auto more = [&](const char* key) {
    return step[key].get<double>() - best[key].get<double>();
  };
  const double seconds = more("seconds_per_step"), launches = more("launch_seconds");
  std::string text = milliseconds(seconds) + " ms longer";
  const char* before = ": ";
  for (const auto& [longer, what] :
       {std::pair{more("compute_seconds") - launches, "in kernels"},
        {launches, "waiting for launches"},
        {more("exposed_communication_seconds"), "waiting for communication"}})
    if (std::abs(longer) > 0.02 * seconds)
      text += str(std::exchange(before, ", "), milliseconds(std::abs(longer)),
                  longer > 0 ? " ms more " : " ms less ", what);
  return text + (seconds < error * seconds_of(best) ? "; within the expected error" : "");
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
          tried.push_back(best_micro_batch(plan, {stage, recompute, offload}));
        } catch (const InputError&) {
          refused = std::current_exception();
        }
      }
  if (tried.empty()) std::rethrow_exception(refused);
  std::ranges::stable_sort(tried, {}, seconds_of);
  const auto best = std::ranges::find(tried, true, [](const Json& s) -> bool { return s["fits"]; });
  Json advice{{"fastest", nullptr}, {"others", Json::array()}};
  if (best == tried.end())
    std::ranges::stable_sort(tried, {},
                             [](const Json& s) { return s["peak_bytes"].get<int64_t>(); });
  else
    advice["fastest"] = *best;
  for (auto s = tried.begin(); s != tried.end() && advice["others"].size() < kOthers; ++s)
    if (s != best) {
      advice["others"].push_back(*s);
      advice["others"].back()["reason"] = reason(*s, advice["fastest"], error);
    }
  return advice;
}

}  // namespace

Machine planned_machine(const ClockFlags& options, int64_t ranks_per_node, int ranks) {
  Machine machine = find_machine(options.machine);
  if (ranks_per_node == 0) return machine;
  machine.ranks_per_node = int(ranks_per_node);
  std::vector<int> all = options.sweep_ranks;
  all.insert(all.begin(), ranks);
  for (const int n : all)
    if (n > ranks_per_node && !machine.fills_nodes(n))
      throw UsageError(str("--ranks-per-node ", ranks_per_node, " does not divide ", n,
                           " ranks into full nodes"));
  return machine;
}

bool add_clock(const ClockPlan& plan, std::string& text, std::string& json) {
  const Machine& m = plan.machine;
  const ExpectedError expected = expected_step_error(machine_data(m), plan.spec.ranks);
  Json document = Json::parse(json);
  document["expected_error"] = {{"share", expected.error}, {"order_only", expected.order_only}};
  document["machine"] = {
      {"name", m.name}, {"title", m.title}, {"ranks_per_node", m.ranks_per_node}};
  bool any_fits = false;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    Json& stage = document["stages"][i];
    stage.update(clock_stage(plan, plan.stages[i]));
    any_fits = any_fits || stage["fits"];
  }
  document["ok"] = any_fits;
  text += clock_text(plan, document["stages"], expected);
  if (plan.flags.advise) {
    const Json& advice = document["advice"] = advise(plan, expected.error);
    Json rows = advice["others"];
    if (const Json& fastest = advice["fastest"]; !fastest.is_null())
      rows.insert(rows.begin(), fastest);
    text += str("\n", plan.flags.overlap.value_or(true) ? "With" : "Without", " overlap, ",
                advice["fastest"].is_null() ? "nothing fits; what needs least:\n\n"
                                            : "the fastest that fits, and why others lose:\n\n",
                table_text<Json>(rows, {{"stage", "/stage", as_is},
                                        {"recompute", "/recompute", as_is},
                                        {"offload optimizer", "/offload_optimizer", as_is},
                                        {"micro-batch", "/micro_batch", as_is},
                                        {"accumulation", "/accumulation", as_is},
                                        {"a step", "/seconds_per_step", as_seconds},
                                        {"peak", "/peak_bytes", as_bytes},
                                        {"reason", "/reason", as_is}}));
  }
  if (!plan.flags.sweep_ranks.empty()) {
    const Json& rows = document["sweep"] = sweep(plan);
    text += str("\nBy number of ranks, without stages whose ranks cannot be grouped:\n\n",
                table_text<Json>(rows, {{"ranks", "/ranks", as_is},
                                        {"stage", "/stage", as_is},
                                        {"a step", "/seconds_per_step", as_seconds},
                                        {"MFU", "/mfu", as_percent},
                                        {"peak", "/peak_bytes", as_bytes},
                                        {"fits", "/fits", as_yes},
                                        {"expected error", "/expected_error", as_percent},
                                        {"order only", "/order_only", as_yes}}));
  }
  json = json_text(document);
  return any_fits;
}

}  // namespace zl::cli
