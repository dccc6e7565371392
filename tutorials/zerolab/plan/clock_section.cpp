#include "tutorials/zerolab/plan/clock_section.h"

#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds_of(double seconds) { return milliseconds(seconds) + " ms"; }
std::string percent(double share) { return format("%.1f %%", 100 * share); }

// The machine with a part of it twice as fast.
Machine faster(Machine m, Part part) {
  if (part == Part::launches) m.rank.launch /= 2;
  if (part == Part::kernels) {
    m.rank.f32_flops *= 2, m.rank.half_flops *= 2, m.rank.memory_bandwidth *= 2;
    m.rank.vector_rate *= 2;
    for (KernelTimes& k : m.rank.kernels)
      for (KernelTimes::Point& p : k.points) p.seconds /= 2;
  }
  if (part == Part::links) {
    m.link.bandwidth *= 2, m.network.bandwidth *= 2, m.network.hop /= 2;
    for (CollectiveRow& row : m.collectives)
      row.terms = {row.terms.alpha / 2, row.terms.root / 2, row.terms.bus * 2};
  }
  if (part == Part::copies) {
    m.host.link_bandwidth *= 2, m.host.memory_bandwidth *= 2;
    m.host.disk_read *= 2, m.host.disk_write *= 2;
  }
  return m;
}

StepLimit limit_of(const GptTrainingSpec& spec, const Machine& machine,
                   const Stragglers& stragglers) {
  std::optional<StepLimit> most;
  for (const Part part : {Part::kernels, Part::links, Part::launches, Part::copies}) {
    const double seconds = clock_step(spec, faster(machine, part), stragglers).times.seconds;
    if (!most || seconds < most->seconds) most = {part, seconds};
  }
  return *most;
}

const char* name(Part part) {
  static constexpr const char* names[] = {"kernels", "links", "launches", "copies"};
  return names[size_t(part)];
}

// What limits a step, and what a machine would bring that is better there.
std::string limit_text(const StageClock& clock, bool several_nodes) {
  const ClockTimes& t = clock.as_configured.times;
  if (clock.limit.seconds > 0.99 * t.seconds)
    return "nothing limits it alone: no part at twice the speed would bring 1 %";
  const auto text = [&](const char* what, double seconds, const char* better) {
    return str(what, " (", percent(seconds / t.seconds), "), ", better, " would bring ",
               milliseconds_of(clock.limit.seconds));
  };
  switch (clock.limit.part) {
    case Part::kernels:
      return text("the kernels limit it", t.compute - t.launches, "kernels of twice the speed");
    case Part::links:
      return text(several_nodes ? "communication limits it" : "the links limit it", t.exposed,
                  "links of twice the speed");
    case Part::launches:
      return text("the host's launches limit it", t.launches, "launches of half the time");
    case Part::copies: break;
  }
  return str("copies and work on the host limit it, those of twice the speed would bring ",
             milliseconds_of(clock.limit.seconds));
}

std::string verdict(const StageClock& clock, bool several_nodes) {
  return str(
      name(clock.stage), ": ", milliseconds_of(clock.as_configured.times.seconds), ", ",
      clock.lacks == Shortage::none ? "fits" : str("does not fit: too little ", name(clock.lacks)),
      "; ", limit_text(clock, several_nodes), ".\n");
}

// The fastest stage that fits, unless the clock cannot tell it from others. "" if none fits, which
// the plan says.
std::string choice(const std::vector<StageClock>& clocks, double error) {
  std::vector<const StageClock*> fit;
  for (const StageClock& c : clocks)
    if (c.lacks == Shortage::none) fit.push_back(&c);
  if (fit.empty()) return "";
  const auto seconds = [](const StageClock* c) { return c->as_configured.times.seconds; };
  std::ranges::stable_sort(fit, {}, seconds);
  const std::string first = name(fit[0]->stage), time = milliseconds_of(seconds(fit[0]));
  const auto longer = [&](size_t i) { return seconds(fit[i]) / seconds(fit[0]) - 1; };
  std::string text =
      str("Take ", first, ": it is the ", fit.size() == 1 ? "only one listed" : "fastest",
          " that fits, with ", time, " for a step");
  if (fit.size() == 1) return text + ".\n";
  if (longer(1) >= error)
    return text +
           str("; ", name(fit[1]->stage), " is next and takes ", percent(longer(1)), " longer.\n");
  std::string others;
  size_t alike = 1;
  for (; alike < fit.size() && longer(alike) < error; ++alike)
    others += str(alike == 1 ? "" : ", ", name(fit[alike]->stage));
  return str(first, " is the fastest that fits, with ", time,
             " for a step, but the clock cannot tell it from ", others, ": at most ",
             percent(longer(alike - 1)), " longer, which is within the expected error.\n");
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

Json by_name(const std::map<std::string, double>& seconds) {
  Json json = Json::object();
  for (const auto& [what, s] : seconds) json[what] = s;
  return json;
}

}  // namespace

std::string machine_list(bool json) {
  if (json) {
    Json machines = Json::array();
    for (const Machine& m : shipped_machines())
      machines.push_back(
          {{"name", m.name}, {"title", m.title}, {"ranks_per_node", m.ranks_per_node}});
    return json_text(
        Json{{"schema", 1}, {"command", "plan"}, {"ok", true}, {"machines", machines}});
  }
  std::string text;
  size_t widest = 0;
  for (const Machine& m : shipped_machines()) widest = std::max(widest, m.name.size());
  for (const Machine& m : shipped_machines())
    text += "  " + m.name + std::string(widest + 2 - m.name.size(), ' ') + m.title + "\n";
  return text +
         "\nEach is a JSON file with its sources (stages/predict/machines/). Your own: copy one, "
         "or write\nthis machine's with zerolab bench machine --save FILE, and pass --machine "
         "./FILE.\n";
}

void group_by_nodes(GptTrainingSpec& spec, const Machine& machine) {
  spec.engine.ranks_per_node = machine.ranks_per_node;
}

Machine take_machine(const ClockFlags& options, const ConfigSource& source, GptTrainingSpec& spec) {
  Machine machine = find_machine(options.machine);
  std::vector<int> all = options.sweep_ranks;
  all.insert(all.begin(), spec.ranks);
  if (const int X = int(source.ranks_per_node); X > 0) {
    machine.ranks_per_node = X;
    for (const int ranks : all)
      if (ranks > X && !machine.fills_nodes(ranks))
        throw UsageError(
            str("--ranks-per-node ", X, " does not divide ", ranks, " ranks into full nodes"));
  }
  spec.device = machine.rank.device;
  if (spec.device_memory == 0) spec.device_memory = int64_t(machine.rank.memory_bytes);
  if (options.overlap) set_overlap(spec.engine, *options.overlap);
  if (spec.engine.ranks_per_node == 0 && spec.engine.replicas == 0 &&
      machine.fills_nodes(spec.ranks))
    group_by_nodes(spec, machine);
  return machine;
}

int64_t host_memory_of_rank(const GptTrainingSpec& spec, const Machine& machine) {
  const Options& e = spec.engine;
  const bool offloads = e.offload_optimizer != OffloadDevice::none ||
                        e.offload_param != OffloadDevice::none || e.cpu_checkpointing;
  return offloads
             ? int64_t(machine.host.memory_bytes) / std::min(spec.ranks, machine.ranks_per_node)
             : 0;
}

std::vector<StageClock> clock_stages(const std::vector<StageKind>& stages,
                                     const GptTrainingSpec& spec, const Machine& machine,
                                     const ClockFlags& options) {
  std::vector<StageClock> clocks;
  Progress progress(std::ssize(stages), options.quiet);
  for (const StageKind stage : stages) {
    progress.item(str("a step of ", name(stage), " on ", machine.name));
    GptTrainingSpec s = spec;
    s.engine.stage = stage;
    StageClock clock{.stage = stage,
                     .as_configured = clock_step(s, machine, options.stragglers),
                     .limit = limit_of(s, machine, options.stragglers)};
    for (const bool on : {true, false}) {
      set_overlap(s.engine, on);
      (on ? clock.with_overlap : clock.without_overlap) =
          clock_step(s, machine, options.stragglers);
    }
    clock.lacks = shortage(clock.as_configured, spec, machine);
    clocks.push_back(std::move(clock));
  }
  progress.clear();
  return clocks;
}

std::string clock_text(const std::vector<StageClock>& clocks, const GptTrainingSpec& spec,
                       const Machine& machine) {
  const int nodes = (spec.ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  std::string text = str("\nA step on ", machine.name, " (", machine.title, "), ",
                         plural(spec.ranks, "rank"), " in ", plural(nodes, "node"), ":\n\n");
  StageTable<StageClock> table(clocks, "");
  const auto row = [&](const std::string& title, double ClockTimes::*part) {
    table.row(title,
              [=](const StageClock& c) { return milliseconds_of(c.as_configured.times.*part); });
  };
  row("a step", &ClockTimes::seconds);
  row("  kernels and launches", &ClockTimes::compute);
  row("    waiting for launches", &ClockTimes::launches);
  row("  communication", &ClockTimes::communication);
  row("    exposed", &ClockTimes::exposed);
  table.row("a step with overlap",
            [](const StageClock& c) { return milliseconds_of(c.with_overlap.times.seconds); });
  table.row("a step without overlap",
            [](const StageClock& c) { return milliseconds_of(c.without_overlap.times.seconds); });
  table.row("tokens per second and rank",
            [](const StageClock& c) { return short_number(c.as_configured.tokens_per_second()); });
  table.row("MFU", [](const StageClock& c) { return percent(c.as_configured.mfu); });
  const ExpectedError expected = expected_step_error(machine_data(machine), spec.ranks);
  text += table.text() + "\n" + choice(clocks, expected.error);
  for (const StageClock& clock : clocks) text += verdict(clock, nodes > 1);
  return text + str("Expected error of these times: ", percent(expected.error),
                    expected.order_only ? "; on so many ranks trust only their order" : "",
                    " (tutorials/reference/clock.md).\n");
}

void add_clock_json(std::string& json, const std::vector<StageClock>& clocks,
                    const GptTrainingSpec& spec, const Machine& machine) {
  Json document = Json::parse(json);
  const ExpectedError expected = expected_step_error(machine_data(machine), spec.ranks);
  document["expected_error"] = {{"share", expected.error}, {"order_only", expected.order_only}};
  document["machine"] = {
      {"name", machine.name}, {"title", machine.title}, {"ranks_per_node", machine.ranks_per_node}};
  for (size_t i = 0; i < clocks.size(); ++i) {
    Json& stage = document["stages"][i];
    stage.update(times_json(clocks[i].as_configured));
    stage["fits"] = clocks[i].lacks == Shortage::none;
    stage["limit"] = {{"part", name(clocks[i].limit.part)},
                      {"seconds_per_step_at_twice_the_speed", clocks[i].limit.seconds}};
    stage["kernel_seconds"] = by_name(clocks[i].as_configured.kernels);
    stage["collective_seconds"] = by_name(clocks[i].as_configured.calls);
    stage["overlap"] = {{"on", times_json(clocks[i].with_overlap)},
                        {"off", times_json(clocks[i].without_overlap)}};
  }
  document["ok"] = any_fits(clocks);
  json = json_text(document);
}

bool any_fits(const std::vector<StageClock>& clocks) {
  return std::ranges::any_of(clocks, [](const auto& c) { return c.lacks == Shortage::none; });
}

}  // namespace zl::cli
