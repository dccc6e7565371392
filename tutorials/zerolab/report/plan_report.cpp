// The reports of what is predicted: plans of stages, and systems as they are shipped.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_rows.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

Json plan_stage_json(const StagePlan& p, bool limited) {
  Json stage{{"stage", name(p.stage)}};
  if (p.out_of_memory) stage["out_of_memory"] = out_of_memory_json<Json>(*p.out_of_memory);
  if (limited) stage["fits"] = !p.out_of_memory;
  stage["memory"] = memory_json<Json>(p.memory, Columns::predicted);
  stage["predicted_peak_total_bytes"] = Json::array({p.peak_total});
  if (p.peak_host > 0) stage["predicted_peak_host_bytes"] = Json::array({p.peak_host});
  stage["predicted_init_peak_total_bytes"] = Json::array({p.init_peak_total});
  stage["communication"] = traffic_json<Json>(p.traffic, Columns::predicted);
  if (!p.moves.empty()) stage["moves"] = moves_json<Json>(p.moves, 1, Columns::predicted);
  const auto& [disk, snapshot, buffer] = p.checkpoint;
  stage["checkpoint"] = {
      {"disk_bytes", disk},
      {"host_bytes", {{"wait", buffer}, {"still", buffer}, {"snapshot", snapshot}}}};
  for (const SettingCost& cost : p.costs)
    stage[cost.setting + "_cost"] = {{"rest_bytes", cost.rest},
                                     {"parameter_bytes", cost.parameter},
                                     {"gradient_bytes", cost.gradient},
                                     {"communication_bytes", cost.communication},
                                     {"peak_total_bytes", cost.peak_total},
                                     {"sent_bytes_per_rank", cost.sent}};
  return stage;
}

Json plan_document(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                   const GptTrainingSpec& spec) {
  Json json = document_head<Json>("plan", spec);
  json.update({{"steps", 1},
               {"as", spec.device_name()},
               {"threads", compute_threads()},
               {"backend", name(spec.transport)},
               {"stages", Json::array()}});
  for (const StagePlan& p : plans)
    json["stages"].push_back(plan_stage_json(p, spec.device_memory > 0 || spec.host_memory > 0));
  if (!presets.empty()) json["presets"] = presets_json<Json>(presets);
  json["ok"] = !std::ranges::all_of(plans, [](auto& p) { return p.out_of_memory.has_value(); });
  return json;
}

// [B] the peak, initialisation included.
int64_t need(const StagePlan& p) { return std::max(p.peak_total, p.init_peak_total); }

std::string fit(int64_t needed, int64_t limit) {
  return needed <= limit ? "yes, " + human_bytes(limit - needed) + " left"
                         : "no, " + human_bytes(needed - limit) + " short";
}

// What a setting costs, from predictions with and without it.
void cost_rows(StageColumns<Json>& table, const std::string& key, const char* title) {
  if (!table.any([&](const Json& s) { return s.contains(key); })) return;
  table.heading(title);
  for (const auto& [part, what] : {std::pair{"rest_bytes", "  in steady state"},
                                   {"parameter_bytes", "  parameter, at its peak"},
                                   {"gradient_bytes", "  gradient, at its peak"},
                                   {"communication_bytes", "  communication, at its peak"},
                                   {"peak_total_bytes", "  peak of a step"},
                                   {"sent_bytes_per_rank", "  sent per rank and step"}})
    table.row(what, [&](const Json& s) {
      const int64_t more = s.contains(key) ? s[key][part].get<int64_t>() : 0;
      return str(more > 0 ? "+" : "", with_commas(more), " B");
    });
}

}  // namespace

std::string plan_head(const GptTrainingSpec& spec, const std::string& model, Recompute recompute) {
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
             spec.window ? spec.window : spec.model.block_size, " tokens; recompute ",
             name(recompute), spec.engine.reproducible ? "; reproducible sums" : "", device,
             transport, "\nmodel states without sharding: ", e + g + state.state + state.master,
             " bytes per parameter = parameter ", e, " + gradient ", g, " + optimizer ",
             state.state, state.master ? str(" + master weights ", state.master) : "", "\n\n");
}

PlanReport plan_report(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                       const GptTrainingSpec& spec, const std::string& head) {
  const Json json = plan_document(plans, presets, spec);
  StageColumns<Json> table(json["stages"], "rank 0");
  const auto peak = [](const char* key) {
    return [=](const Json& s) { return of_rank_0(s, key); };
  };
  byte_rows(table, false);
  for (const auto& [title, place] :
       {std::pair{"a checkpoint on disk", "/checkpoint/disk_bytes"},
        {"  on the host, wait or still", "/checkpoint/host_bytes/still"},
        {"  on the host, snapshot", "/checkpoint/host_bytes/snapshot"}})
    table.row(title, place, human_bytes);
  if (const int64_t limit = spec.device_memory; limit > 0)
    table.row("fits " + human_bytes(limit), [&](const Json& s) {
      return fit(std::max(peak("predicted_peak_total_bytes")(s),
                          peak("predicted_init_peak_total_bytes")(s)),
                 limit);
    });
  if (const int64_t limit = spec.host_memory; limit > 0)
    table.row("fits " + human_bytes(limit) + " of the host",
              [&](const Json& s) { return fit(peak("predicted_peak_host_bytes")(s), limit); });
  cost_rows(table, "overlap_cost", "what overlap and prefetch cost");
  cost_rows(table, "reproducible_cost", "what reproducible sums cost");
  return {head + table.text() + "\n" + preset_text(presets), json_text(json), json["ok"]};
}

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
  return str("Take ", name(first->stage),
             ", the first that fits; the table says what each sends.\n");
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
  const Json json = presets_json<Json>(presets);
  StageColumns<Json> table(json, "predicted, not run", "preset");
  byte_rows(table, false);
  std::string text = table.text() + "\n";
  for (const PresetPlan& p : presets)
    text += str(p.stage->name, " ", p.stage->difference, ". Left out: ", p.stage->left_out, ".\n");
  return text +
         "e, g, c: bytes of a parameter, of a gradient, of a gradient while it is communicated. A: "
         "micro-batches.\n\n";
}

}  // namespace zl::cli
