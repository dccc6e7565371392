// The reports of what is predicted: plans of stages, and systems as they are shipped.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_json.h"

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
  stage["checkpoint"] = checkpoint_json<Json>(p.checkpoint);
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

int64_t sent(const Json& stage) {  // [B] per step
  return sum_of(stage["communication"], "predicted_sent_bytes_per_rank");
}

std::string fit(int64_t needed, int64_t limit) {
  return needed <= limit ? "yes, " + human_bytes(limit - needed) + " left"
                         : "no, " + human_bytes(needed - limit) + " short";
}

// A line for each stage about what a setting costs, from predictions with and without it: "+50,816
// B of gradients, +50,816 B of parameters". What the setting does not change is left out.
std::string cost_lines(const Json& stages, const char* key, const char* words) {
  const auto bytes = [](int64_t n) { return str(n > 0 ? "+" : "", with_commas(n), " B"); };
  std::string text;
  for (const Json& stage : stages) {
    if (!stage.contains(key)) continue;
    const Json& cost = stage[key];
    std::string changes;
    for (const auto& [part, what] : {std::pair{"rest_bytes", " in steady state"},
                                     {"gradient_bytes", " of gradients"},
                                     {"parameter_bytes", " of parameters"},
                                     {"communication_bytes", " of communication"},
                                     {"sent_bytes_per_rank", " sent per step"}})
      if (cost[part] != 0) changes += (changes.empty() ? "" : ", ") + bytes(cost[part]) + what;
    const int64_t peak = cost["peak_total_bytes"];
    text += str(stage["stage"].get<std::string>(), ", ", words, ": ",
                changes.empty() ? "no bytes"
                : peak == 0     ? changes + "; the peak of a step is the same"
                                : changes + "; the peak of a step changes by " + bytes(peak),
                "\n");
  }
  return text.empty() ? "" : text + "\n";
}

// The run, and what its model states take in all.
std::string head(const GptTrainingSpec& spec, const std::string& model, Recompute recompute) {
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

}  // namespace

std::string plan_json(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                      const GptTrainingSpec& spec) {
  return json_text(plan_document(plans, presets, spec));
}

std::string plan_text(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec,
                      const std::string& model, Recompute recompute) {
  const Json json = plan_document(plans, {}, spec), &stages = json["stages"];
  StageColumns<Json> table(stages, "rank 0");
  const auto memory = [&](const std::string& title, const Json& rows, const std::string& key) {
    table.row(title, [&](const Json& s) { return sum_of(s["memory"], key, rows); });
  };
  const auto peak = [](const char* key) {
    return [=](const Json& s) { return of_rank_0(s, key); };
  };
  const auto host_peak = peak("predicted_peak_host_bytes");
  table.use_rows("device", "predicted_rest_bytes");
  memory("steady state", {{"pool", "device"}}, "predicted_rest_bytes");
  for (const char* use : {"parameter", "gradient", "activation", "communication", "workspace"})
    memory(str("  ", use, ", at its peak"), {{"pool", "device"}, {"use", use}},
           "predicted_peak_bytes");
  table.row("peak of a step", peak("predicted_peak_total_bytes"));
  if (table.any(host_peak))
    memory("on the host, steady state", {{"pool", "host"}}, "predicted_rest_bytes");
  table.row_if_any("on the host, peak of a step", host_peak);
  table.row_if_any("on disk", [](const Json& s) {
    return sum_of<Json>(s["memory"], "predicted_rest_bytes", {{"pool", "disk"}});
  });
  table.row("sent per step", sent);
  for (int i = 0; i < kMoves; ++i)
    table.row_if_any(str(name(Move(i)), " per step"), [i](const Json& s) {
      return sum_of<Json>(s.value("moves", Json::array()), "predicted_bytes_per_step",
                          {{"move", name(Move(i))}});
    });
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
              [&](const Json& s) { return fit(host_peak(s), limit); });
  return head(spec, model, recompute) + table.text() + "\n" +
         cost_lines(stages, "overlap_cost", "overlap and prefetch") +
         cost_lines(stages, "reproducible_cost", "reproducible sums");
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
  table.heading("memory of rank 0 in steady state");
  table.use_rows("device", "predicted_rest_bytes");
  table.heading("each use at its own peak");
  table.use_rows("device", "predicted_peak_bytes");
  table.heading();
  table.row("sent per rank and step", sent);
  std::string text = table.text() + "\n";
  for (const PresetPlan& p : presets)
    text += str(p.stage->name, " ", p.stage->difference, ". Left out: ", p.stage->left_out, ".\n");
  return text +
         "e, g, c: bytes of a parameter, of a gradient, of a gradient while it is communicated. A: "
         "micro-batches.\n\n";
}

}  // namespace zl::cli
