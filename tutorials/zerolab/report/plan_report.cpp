// The reports of what is predicted: plans of stages, systems as they are shipped, model states.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stages/predict/closed_form.h"
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

}  // namespace

std::string bytes_per_parameter(const Options& options) {
  const OptimizerBytes state = optimizer_bytes(options.optimizer, options.precision);
  const int64_t e = size_of(options.precision), g = size_of(gradient_type(options));
  return str(e + g + state.state + state.master, " bytes per parameter = parameter ", e,
             " + gradient ", g, " + optimizer ", state.state,
             state.master ? str(" + master weights ", state.master) : "");
}

std::string plan_head(const GptTrainingSpec& spec, const std::string& model, Recompute recompute) {
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
             transport, "\nmodel states without sharding: ", bytes_per_parameter(spec.engine),
             "\n\n");
}

PlanReport plan_report(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                       const GptTrainingSpec& spec, const std::string& head) {
  const Json json = plan_document(plans, presets, spec);
  StageColumns<Json> table(json["stages"], "rank 0");
  // The larger of two peaks.
  const auto fits = [&](int64_t limit, const char* where, const char* step, const char* start) {
    if (limit == 0) return;
    table.row("fits " + human_bytes(limit) + where, [=](const Json& s) {
      const int64_t left = limit - std::max(of_rank_0(s, step), of_rank_0(s, start));
      return left < 0 ? "no, " + human_bytes(-left) + " short"
                      : "yes, " + human_bytes(left) + " left";
    });
  };
  byte_rows(table, false);
  table.row("a checkpoint on disk", "/checkpoint/disk_bytes", human_bytes);
  if (spec.checkpoint.saves())
    for (const auto& [title, place] :
         {std::pair{"  host memory of a save (wait, still)", "/checkpoint/host_bytes/still"},
          {"  host memory of a save (snapshot)", "/checkpoint/host_bytes/snapshot"}})
      table.row(title, place, human_bytes);
  fits(spec.device_memory, "", "predicted_peak_total_bytes", "predicted_init_peak_total_bytes");
  fits(spec.host_memory, " of the host", "predicted_peak_host_bytes", "");
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

// ---- model states alone -------------------------------------------------------------------------

namespace {

Json model_states_json(double parameters, int ranks, Options options, StageKind stage) {
  const ModelStates states =
      model_states(stage, parameters, ranks,
                   {size_of(options.precision), size_of(gradient_type(options)),
                    optimizer_bytes(options.optimizer, options.precision)});
  options.stage = stage;
  const SentElements sent = sent_elements(options, parameters, ranks);
  options.stage = StageKind::ddp;  // all save the same
  const auto [disk, snapshot, buffer] = checkpoint_bytes({.options = options,
                                                          .ranks = ranks,
                                                          .units = {int64_t(parameters)},
                                                          .parameters = int64_t(parameters)},
                                                         DeviceKind::cpu);
  Json memory = Json::array();
  for (const auto& [use, bytes] : {std::pair{"parameter", states.parameter},
                                   {"gradient", states.gradient},
                                   {"optimizer", states.optimizer}})
    memory.push_back(
        {{"rank", 0}, {"pool", "device"}, {"use", use}, {"predicted_rest_bytes", bytes}});
  return {{"stage", name(stage)},
          {"memory", memory},
          {"predicted_rest_total_bytes", states.total()},
          {"predicted_sent_bytes_per_rank",
           sent.gradient * double(size_of(communication_type(options))) +
               sent.parameter * double(size_of(options.precision))},
          {"checkpoint",
           {{"disk_bytes", disk},
            {"host_bytes", {{"wait", buffer}, {"still", buffer}, {"snapshot", snapshot}}}}}};
}

std::string model_states_text(const Json& report, const Options& options, int64_t device_memory) {
  StageColumns<Json> table(report["stages"], "model states of a rank");
  for (const auto& [title, place] :
       {std::pair{"  parameter", "/memory/0/predicted_rest_bytes"},
        {"  gradient", "/memory/1/predicted_rest_bytes"},
        {"  optimizer, master weights", "/memory/2/predicted_rest_bytes"},
        {"total", "/predicted_rest_total_bytes"},
        {"sent per step", "/predicted_sent_bytes_per_rank"},
        {"a checkpoint on disk", "/checkpoint/disk_bytes"}})
    table.row(title, place, [](double b) { return digits(b / 1e9, 4) + " GB"; });
  if (device_memory > 0)
    table.row("fits " + human_bytes(device_memory), "/fits",
              [](bool fits) { return std::string(fits ? "yes" : "no"); });
  return str(with_commas(report["parameters"]), " parameters, ", plural(report["ranks"], "rank"),
             ", ", as_is(report["precision"]), ": ", bytes_per_parameter(options), "\n\n",
             table.text(),
             "\nThese are model states only (GB = 1e9 bytes), as in the ZeRO paper's Table 1. "
             "Activations are added by plan --model.\n");
}

}  // namespace

PlanReport model_states_report(double parameters, int ranks, const Options& options,
                               const std::vector<StageKind>& stages, int64_t device_memory) {
  Json json{{"schema", 1},
            {"command", "plan"},
            {"ok", false},
            {"ranks", ranks},
            {"parameters", int64_t(parameters)},
            {"steps", 1},
            {"precision", precision_name(options.precision)}};
  for (const StageKind stage : stages) {
    Json row = model_states_json(parameters, ranks, options, stage);
    if (device_memory > 0) row["fits"] = row["predicted_rest_total_bytes"] <= double(device_memory);
    json["ok"] = json["ok"] || row.value("fits", true);
    json["stages"].push_back(std::move(row));
  }
  return {model_states_text(json, options, device_memory), json_text(json), json["ok"]};
}

}  // namespace zl::cli
