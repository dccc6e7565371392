// The texts of what is predicted: plans of stages, and systems as they are shipped.

#include <algorithm>

#include "stages/predict/plan.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {
namespace {

// [B] the peak, initialisation included.
int64_t need(const StagePlan& p) { return std::max(p.peak_total, p.init_peak_total); }

// [B] per step.
int64_t sent(const auto& p) { return sent_bytes(p.traffic, &TrafficRow::predicted_sent); }

std::string fit(int64_t needed, int64_t limit) {
  return needed <= limit ? "yes, " + human_bytes(limit - needed) + " left"
                         : "no, " + human_bytes(needed - limit) + " short";
}

// A line for each stage about what a setting costs, from predictions with and without it: "+50,816
// B of gradients, +50,816 B of parameters". What the setting does not change is left out.
std::string cost_lines(const std::vector<StagePlan>& plans, const std::string& setting,
                       const char* words) {
  const auto bytes = [](int64_t n) { return str(n > 0 ? "+" : "", with_commas(n), " B"); };
  std::string text;
  for (const StagePlan& p : plans)
    for (const SettingCost& cost : p.costs) {
      if (cost.setting != setting) continue;
      std::string changes;
      for (const auto& [part, what] : {std::pair{&SettingCost::rest, " in steady state"},
                                       {&SettingCost::gradient, " of gradients"},
                                       {&SettingCost::parameter, " of parameters"},
                                       {&SettingCost::communication, " of communication"},
                                       {&SettingCost::sent, " sent per step"}})
        if (cost.*part != 0) changes += (changes.empty() ? "" : ", ") + bytes(cost.*part) + what;
      if (changes.empty())
        changes = "no bytes";
      else
        changes += cost.peak_total == 0
                       ? "; the peak of a step is the same"
                       : "; the peak of a step changes by " + bytes(cost.peak_total);
      text += str(name(p.stage), ", ", words, ": ", changes, "\n");
    }
  return text.empty() ? "" : text + "\n";
}

// What waits for backward, by the closed formulas; "" where no input is checkpointed.
std::string checkpointed_line(const TrainingSpec& spec) {
  const PredictionInput in = prediction_input(spec);
  const auto inputs = int64_t(in.kept_inputs.size());
  if (inputs == 0) return "";
  CommunicationLog log;
  add_input_gathers(log, in);
  int64_t gathered = 0;
  for (const auto& [key, traffic] : log.rows()) gathered += traffic.sent_bytes();
  const int64_t back = returned_bytes(in);
  return str("activation checkpointing: ", plural(inputs, "input"), " of a micro-batch, ",
             with_commas(kept_bytes(in)), " B of a rank, ", inputs == 1 ? "waits" : "wait",
             " for backward on the ", in.options.cpu_checkpointing ? "host" : "device",
             back > 0 ? str("; one that comes back takes ", with_commas(back), " B") : "",
             gathered > 0
                 ? str("; a rank sends ", with_commas(gathered), " B per micro-batch for them")
                 : "",
             "\n");
}

// The run, and what its model states take in all.
std::string head(const GptTrainingSpec& spec, const std::string& model) {
  const OptimizerBytes state = optimizer_bytes(spec.engine.optimizer, spec.engine.precision);
  const int64_t e = size_of(spec.engine.precision), g = size_of(gradient_type(spec.engine));
  const char* device = spec.device == DeviceKind::cuda ? "; as on GPUs"
                       : spec.reference                ? "; as on the reference kernels"
                                                       : "";
  const char* transport = spec.transport == Transport::nccl  ? " with NCCL"
                          : spec.transport == Transport::mpi ? "; with MPI"
                                                             : "";
  return str(model, ": ", with_commas(spec.model.parameters()), " parameters, ",
             plural(spec.ranks, "rank"),
             compute_threads() > 1 ? str(" of ", compute_threads(), " threads") : "", ", ",
             precision_name(spec.engine.precision), "; B ", spec.micro_batch, " × A ",
             spec.engine.accumulation, ", sequences of ",
             spec.window ? spec.window : spec.model.block_size, " tokens",
             spec.engine.reproducible ? "; reproducible sums" : "", device, transport,
             "\nmodel states without sharding: ", e + g + state.state + state.master,
             " bytes per parameter = parameter ", e, " + gradient ", g, " + optimizer ",
             state.state, state.master ? str(" + master weights ", state.master) : "", "\n",
             checkpointed_line(spec), "\n");
}

}  // namespace

std::string plan_text(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec,
                      const std::string& model) {
  StageTable<StagePlan> table(plans, "rank 0");
  const auto at_rest = [](Pool pool) {
    return [=](const StagePlan& p) {
      return bytes_of(p.memory, pool, std::nullopt, &MemoryRow::predicted_rest);
    };
  };
  use_rows(table, Pool::device, &MemoryRow::predicted_rest);
  table.row("steady state", at_rest(Pool::device));
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::activation,
                              MemoryUse::communication, MemoryUse::workspace})
    table.row(str("  ", name(use), ", at its peak"), [=](const StagePlan& p) {
      return bytes_of(p.memory, Pool::device, use, &MemoryRow::predicted_peak);
    });
  table.row("peak of a step", [](const StagePlan& p) { return p.peak_total; });
  const auto on_host = [](const StagePlan& p) { return p.peak_host; };
  if (table.any(on_host)) table.row("on the host, steady state", at_rest(Pool::host));
  table.row_if_any("on the host, peak of a step", on_host);
  table.row_if_any("on disk", at_rest(Pool::disk));
  table.row("sent per step", [](const StagePlan& p) { return sent(p); });
  for (int i = 0; i < kMoves; ++i)
    table.row_if_any(str(name(Move(i)), " per step"), [i](const StagePlan& p) {
      return moved_bytes(p.moves, Move(i), &MoveRow::predicted_bytes);
    });
  table.row("a checkpoint on disk", [](const StagePlan& p) { return p.checkpoint.disk; });
  table.row("  on the host, wait or still", [](auto& p) { return p.checkpoint.buffer; });
  table.row("  on the host, snapshot", [](auto& p) { return p.checkpoint.snapshot; });
  if (const int64_t limit = spec.device_memory; limit > 0)
    table.row("fits " + human_bytes(limit), [=](auto& p) { return fit(need(p), limit); });
  if (const int64_t limit = spec.host_memory; limit > 0)
    table.row("fits " + human_bytes(limit) + " of the host",
              [=](auto& p) { return fit(p.peak_host, limit); });
  return head(spec, model) + table.text() + "\n" +
         cost_lines(plans, "overlap", "overlap and prefetch") +
         cost_lines(plans, "reproducible", "reproducible sums");
}

// Later stages keep less, and usually send no less.
std::string plan_advice(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec) {
  const StagePlan& smallest = *std::ranges::min_element(plans, {}, need);
  if (spec.device_memory == 0 && spec.host_memory == 0)
    return str(
        "To see which stages fit, give --device-memory SIZE, the memory of one rank. The "
        "smallest is ",
        name(smallest.stage), ".\n");
  const auto first =
      std::ranges::find_if(plans, [](const StagePlan& p) { return !p.out_of_memory; });
  if (first == plans.end())
    return str(
        "No stage fits. The smallest, ", name(smallest.stage), ", needs ",
        human_bytes(need(smallest)),
        smallest.peak_host > 0 ? " and " + human_bytes(smallest.peak_host) + " of host memory" : "",
        ". Try more ranks, a smaller micro-batch (--set train_micro_batch_size_per_gpu=1), "
        "or activation checkpointing (--set zerolab.recompute=full).\n");
  const auto less = std::find_if(first, plans.end(), [&](const StagePlan& other) {
    return !other.out_of_memory && sent(other) < sent(*first);
  });
  if (less != plans.end())
    return str(
        "Take ", name(first->stage), ", the first that fits, or ", name(less->stage),
        ", which sends less",
        bits_of(less->stage) == VariantBits::lossy ? ", in fewer bits: its results differ" : "",
        ".\n");
  if (first->stage == StageKind::zero3 && first + 1 == plans.end())
    return str("Take zero3: it is the only one listed that fits",
               spec.engine.overlap.max_reuse_distance > 0 || spec.engine.reproducible
                   ? ".\n"
                   : ", and it sends half as much again as the others.\n");
  return str("Take ", name(first->stage),
             ": it is the first that fits, and no later stage sends less.\n");
}

std::vector<PresetPlan> predict_presets(std::vector<const Preset*> presets, const Config& config,
                                        const TrainingSpec& spec) {
  if (!config.as.empty()) presets.push_back(find_preset(config.as));
  std::ranges::sort(presets);
  presets.erase(std::unique(presets.begin(), presets.end()), presets.end());
  std::vector<PresetPlan> plans;
  for (const Preset* preset : presets)
    plans.push_back(predict(*preset, spec, config.persistence_threshold));
  return plans;
}

std::string preset_text(const std::vector<PresetPlan>& presets) {
  if (presets.empty()) return "";
  StageTable<PresetPlan> table(presets, "predicted, not run");
  table.heading("memory of rank 0 in steady state");
  use_rows(table, Pool::device, &MemoryRow::predicted_rest);
  table.heading("each use at its own peak");
  use_rows(table, Pool::device, &MemoryRow::predicted_peak);
  table.heading();
  table.row("sent per rank and step", [](const PresetPlan& p) { return sent(p); });
  std::string text = table.text() + "\n";
  for (const PresetPlan& p : presets)
    text += str(p.stage->name, " ", p.stage->difference, ". Left out: ", p.stage->left_out, ".\n");
  return text +
         "e, g, c: bytes of a parameter, of a gradient, of a gradient while it is communicated. A: "
         "micro-batches.\n\n";
}

}  // namespace zl::cli
