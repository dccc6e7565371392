// Which settings to take: every combination of stage, recomputation, offload and micro-batch goes
// through the dry run and the clock.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stages/train/gpt_spec.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
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
  Advice(const GptTrainingSpec& spec, const Machine& machine, const ClockFlags& options)
      : spec_(spec), machine_(machine), options_(options) {}

  PlanSection section() {
    try_all();
    std::ranges::stable_sort(tried_, {}, [](const Settings& s) { return s.time.times.seconds; });
    const auto best = std::ranges::find_if(tried_, &Settings::fits);
    if (best == tried_.end()) return {"advice", none_fits(), "null"};
    std::string all =
        str("\nThe fastest that fits ", gibibytes(spec_.device_memory), ": ", cli::text(*best),
            ": ", milliseconds(best->time.times.seconds), " ms, ",
            short_number(best->time.tokens_per_second()), " tokens per second and rank, ",
            gibibytes(best->time.device_peak), ".\nWhy others lose:\n");
    nlohmann::ordered_json json{{"fastest", json_of(*best)},
                                {"others", nlohmann::ordered_json::array()}};
    for (const Settings& s : tried_) {
      if (&s == &*best || json["others"].size() == kOthers) continue;
      const std::string why = reason(s, *best);
      all += str("  ", cli::text(s), ": ", why, ".\n");
      json["others"].push_back(json_of(s));
      json["others"].back()["reason"] = why;
    }
    return {"advice", all, json.dump()};
  }

 private:
  void try_all() {
    std::vector<StageKind> stages(std::begin(kStages), std::end(kStages));
    if (spec_.ranks > machine_.ranks_per_node && spec_.ranks % machine_.ranks_per_node == 0)
      stages.push_back(StageKind::hsdp);
    for (const StageKind stage : stages)
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
        for (const OffloadDevice offload : {OffloadDevice::none, OffloadDevice::cpu}) {
          if (offload == OffloadDevice::cpu &&
              (!shards_optimizer(stage) || machine_.host.link_bandwidth == 0))
            continue;
          try_micro_batches({.stage = stage, .recompute = recompute, .offload = offload});
        }
  }

  // Keeps the fastest that fits, or else the smallest.
  void try_micro_batches(Settings settings) {
    const int64_t rows = spec_.micro_batch * spec_.engine.accumulation;
    std::optional<Settings> kept;
    for (int64_t B = 1; B <= std::min(rows, kMostRows); ++B) {
      if (rows % B != 0) continue;
      if (interrupt_requested()) throw Interrupted();
      settings.micro_batch = B, settings.accumulation = rows / B;
      settings.time = time_of(settings);
      settings.fits = shortage(settings.time, spec_, machine_) == Shortage::none;
      const bool better =
          !kept || (settings.fits && settings.time.times.seconds < kept->time.times.seconds);
      if (better) kept = settings;
      if (!settings.fits) break;  // larger ones need more
    }
    tried_.push_back(*kept);
  }

  StepTime time_of(const Settings& settings) const {
    GptTrainingSpec s = spec_;
    const GptTrainingSpec model = gpt_spec(s.model, s.window, settings.recompute);
    s.make_model = model.make_model;
    s.checkpointed_rows = model.checkpointed_rows;
    s.micro_batch = settings.micro_batch;
    s.engine.accumulation = settings.accumulation;
    s.engine.stage = settings.stage;
    s.engine.offload_optimizer = settings.offload;
    if (settings.stage == StageKind::hsdp) {
      s.engine.ranks_per_node = machine_.ranks_per_node;
      s.engine.replicas = s.ranks / machine_.ranks_per_node;
    }
    set_overlap(s.engine, options_.overlap.value_or(true));
    return clock_step(s, machine_, options_.stragglers);
  }

  std::string reason(const Settings& s, const Settings& best) const {
    if (!s.fits && s.time.device_peak > spec_.device_memory)
      return str("needs ", gibibytes(s.time.device_peak), ", ",
                 gibibytes(s.time.device_peak - spec_.device_memory), " too much");
    if (!s.fits) return str("needs ", gibibytes(s.time.host_peak), " of host memory for each rank");
    const ClockTimes more = s.time.times - best.time.times;
    const double kernels = more.compute - more.launches;
    const std::string longer = str(milliseconds(more.seconds), " ms longer: ");
    if (more.exposed >= std::max(kernels, more.launches))
      return str(longer, milliseconds(more.exposed), " ms of it waiting for communication");
    if (more.launches > kernels)
      return str(longer, milliseconds(more.launches), " ms of it waiting for launches");
    const char* why = s.recompute > best.recompute ? ", which compute more activations again"
                      : s.offload != best.offload  ? ", with copies to and from the host"
                                                   : "";
    return str(longer, milliseconds(kernels), " ms of it in kernels", why);
  }

  std::string none_fits() const {
    const Settings& least =
        *std::ranges::min_element(tried_, {}, [](const Settings& s) { return s.time.device_peak; });
    return str("\nNothing fits ", gibibytes(spec_.device_memory), ". Least needs ",
               cli::text(least), ": ", gibibytes(least.time.device_peak), ". Try more ranks.\n");
  }

  const GptTrainingSpec& spec_;
  const Machine& machine_;
  const ClockFlags& options_;
  std::vector<Settings> tried_;
};

}  // namespace

PlanSection advice_section(const GptTrainingSpec& spec, const Machine& machine,
                           const ClockFlags& options) {
  return Advice(spec, machine, options).section();
}

}  // namespace zl::cli
