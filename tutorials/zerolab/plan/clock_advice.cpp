// Which settings to take: every combination of stage, recomputation, offload and micro-batch goes
// through the dry run and the clock.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stages/train/gpt_spec.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {
namespace {

constexpr size_t kOthers = 3;      // that are shown beside the fastest
constexpr int64_t kMostRows = 64;  // of a micro-batch

struct Settings {
  StageKind stage{};
  Recompute recompute{};
  OffloadDevice offload{};
  int64_t micro_batch = 1, accumulation = 1;
  StepTime time;
  bool fits = false;
};

std::string text(const Settings& s) {
  return str(name(s.stage), s.offload == OffloadDevice::cpu ? ", optimizer on the host" : "",
             ", recompute ", name(s.recompute), ", B ", s.micro_batch, " × A ", s.accumulation);
}

std::string gibibytes(int64_t bytes) { return human_bytes(bytes); }

nlohmann::ordered_json json_of(const Settings& s) {
  return {{"stage", name(s.stage)},
          {"recompute", name(s.recompute)},
          {"offload_optimizer", name(s.offload)},
          {"micro_batch", s.micro_batch},
          {"accumulation", s.accumulation},
          {"seconds_per_step", s.time.times.seconds},
          {"tokens_per_second_per_rank", s.time.tokens_per_second()},
          {"peak_bytes", s.time.device_peak},
          {"fits", s.fits}};
}

class Advice {
 public:
  Advice(const std::vector<StageKind>& stages, const GptTrainingSpec& spec, const Machine& machine,
         const ClockFlags& options)
      : stages_(stages), spec_(spec), machine_(machine), options_(options) {}

  PlanSection section() {
    try_all();
    std::ranges::stable_sort(tried_, {}, [](const Settings& s) { return s.time.times.seconds; });
    const auto best = std::ranges::find_if(tried_, &Settings::fits);
    if (best == tried_.end()) return {"advice", none_fits(), "null"};
    const double error = expected_step_error(machine_data(machine_), spec_.ranks).error;
    std::string all =
        str("\n", options_.overlap.value_or(true) ? "With" : "Without",
            " overlap, the fastest that fits ", gibibytes(spec_.device_memory), ": ",
            cli::text(*best), ": ", milliseconds(best->time.times.seconds), " ms, ",
            short_number(best->time.tokens_per_second()), " tokens per second and rank, ",
            gibibytes(best->time.device_peak), tried_.size() == 1 ? ".\n" : ".\nOthers:\n");
    nlohmann::ordered_json json{{"fastest", json_of(*best)},
                                {"others", nlohmann::ordered_json::array()}};
    for (const Settings& s : tried_) {
      if (&s == &*best || json["others"].size() == kOthers) continue;
      const bool within = s.fits && s.time.times.seconds < (1 + error) * best->time.times.seconds;
      const std::string why = reason(s, *best) + (within ? "; within the expected error" : "");
      all += str("  ", cli::text(s), ": ", why, ".\n");
      json["others"].push_back(json_of(s));
      json["others"].back()["reason"] = why;
    }
    return {"advice", all, json.dump()};
  }

 private:
  void try_all() {
    std::vector<Settings> all;
    for (const StageKind stage : stages_)
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
        for (const OffloadDevice offload : {OffloadDevice::none, OffloadDevice::cpu}) {
          if (offload == OffloadDevice::cpu &&
              (!shards_optimizer(stage) || machine_.host.link_bandwidth == 0))
            continue;
          all.push_back({.stage = stage, .recompute = recompute, .offload = offload});
        }
    std::exception_ptr refused;
    Progress progress(std::ssize(all), options_.quiet);
    for (const Settings& settings : all) {
      progress.item(str(name(settings.stage), ", recompute ", name(settings.recompute)));
      try {
        try_micro_batches(settings);
      } catch (const InputError&) {  // such as offload of a stage that has none
        refused = std::current_exception();
      }
    }
    progress.clear();
    if (tried_.empty()) std::rethrow_exception(refused);
  }

  // Keeps the fastest that fits, or else the smallest.
  void try_micro_batches(Settings settings) {
    const int64_t rows = spec_.micro_batch * spec_.engine.accumulation;
    std::optional<Settings> kept;
    for (int64_t B = 1; B <= std::min(rows, kMostRows); ++B) {
      if (rows % B != 0) continue;
      if (interrupt_requested()) throw Interrupted();
      settings.micro_batch = B, settings.accumulation = rows / B;
      settings.time = time_of(settings, spec_.ranks);
      settings.fits = shortage(settings.time, spec_, machine_) == Shortage::none;
      const bool better =
          !kept || (settings.fits && settings.time.times.seconds < kept->time.times.seconds);
      if (better) kept = settings;
      if (!settings.fits) break;  // larger ones need more
    }
    tried_.push_back(*kept);
  }

  StepTime time_of(const Settings& settings, int ranks) const {
    GptTrainingSpec s = spec_;
    s.ranks = ranks;
    const GptTrainingSpec model = gpt_spec(s.model, s.window, settings.recompute);
    s.make_model = model.make_model;
    s.checkpointed_rows = model.checkpointed_rows;
    s.micro_batch = settings.micro_batch;
    s.engine.accumulation = settings.accumulation;
    s.engine.stage = settings.stage;
    s.engine.offload_optimizer = settings.offload;
    set_overlap(s.engine, options_.overlap.value_or(true));
    return clock_step(s, machine_, options_.stragglers);
  }

  std::string reason(const Settings& s, const Settings& best) const {
    if (!s.fits) return lack(s);
    const ClockTimes more = s.time.times - best.time.times;
    const std::string seconds = milliseconds(more.seconds);
    if (milliseconds(s.time.times.seconds) == milliseconds(best.time.times.seconds))
      return str("takes as long", s.time.device_peak > best.time.device_peak
                                      ? str(", and ", gibibytes(s.time.device_peak), " of memory")
                                      : "");
    const char* why = s.recompute > best.recompute ? " (more activations are computed again)"
                      : s.offload != best.offload  ? " and copies to and from the host"
                                                   : "";
    std::vector<std::string> parts;
    const auto part = [&](double longer, const std::string& what) {
      const double size = std::abs(longer);
      if (size < 0.02 * more.seconds) return;
      parts.push_back(str(milliseconds(size), longer > 0 ? " ms more " : " ms less ", what));
    };
    part(more.compute - more.launches, str("in kernels", why));
    part(more.launches, "waiting for launches");
    part(more.exposed, "waiting for communication");
    std::string text = seconds + " ms longer";
    for (const std::string& p : parts) text += (&p == &parts.front() ? ": " : ", ") + p;
    return text;
  }

  // What settings that do not fit need.
  std::string lack(const Settings& s) const {
    const Shortage short_of = shortage(s.time, spec_, machine_);
    if (short_of == Shortage::device_memory)
      return str("needs ", gibibytes(s.time.device_peak), ", ",
                 gibibytes(s.time.device_peak - spec_.device_memory), " too much");
    return str("needs ",
               gibibytes(short_of == Shortage::disk ? s.time.disk_peak : s.time.host_peak), " of ",
               name(short_of), " for each rank, and there is less");
  }

  std::string none_fits() const {
    const Settings& least =
        *std::ranges::min_element(tried_, {}, [](const Settings& s) { return s.time.device_peak; });
    return str("\nNothing fits ", gibibytes(spec_.device_memory),
               ". What needs least on the device, ", cli::text(least), ", ", lack(least), ". ",
               more_ranks(least), "\n");
  }

  // From how many ranks on these settings fit.
  std::string more_ranks(const Settings& settings) const {
    constexpr int kMost = 1 << 16;
    if (machine_.network.ports == 0 || settings.time.tokens == 0) return "The machine is one node.";
    for (int ranks = 2 * spec_.ranks; ranks <= kMost; ranks *= 2) {
      if (interrupt_requested()) throw Interrupted();
      if (shortage(time_of(settings, ranks), spec_, machine_) == Shortage::none)
        return str("It fits on ", ranks, " ranks.");
    }
    return "More ranks do not help: what is not sharded is too large.";
  }

  const std::vector<StageKind>& stages_;
  const GptTrainingSpec& spec_;
  const Machine& machine_;
  const ClockFlags& options_;
  std::vector<Settings> tried_;
};

}  // namespace

std::vector<StageKind> advised_stages(const GptTrainingSpec& spec, const Machine& machine) {
  std::vector<StageKind> stages(std::begin(kStages), std::end(kStages));
  if (machine.fills_nodes(spec.ranks) && !spec.engine.reproducible)
    stages.push_back(StageKind("hsdp"));
  return stages;
}

PlanSection advice_section(const std::vector<StageKind>& stages, const GptTrainingSpec& spec,
                           const Machine& machine, const ClockFlags& options) {
  return Advice(stages, spec, machine, options).section();
}

}  // namespace zl::cli
