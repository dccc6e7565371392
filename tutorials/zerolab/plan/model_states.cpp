#include "tutorials/zerolab/plan/model_states.h"

#include <nlohmann/json.hpp>

#include "stages/predict/closed_form.h"
#include "tutorials/zerolab/cli/document.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

ElementBytes element_bytes(const Options& options) {
  return {size_of(options.precision), size_of(gradient_type(options)),
          optimizer_bytes(options.optimizer, options.precision)};
}

Json stage_json(double parameters, int ranks, Options options, StageKind stage) {
  const ModelStates states = model_states(stage, parameters, ranks, element_bytes(options));
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

std::string text_of(const Json& report, const ElementBytes& bytes, int64_t device_memory) {
  StageColumns<Json> table(report["stages"], "model states of a rank");
  for (const auto& [title, place] : {std::pair{"  parameter", "/memory/0/predicted_rest_bytes"},
                                     {"  gradient", "/memory/1/predicted_rest_bytes"},
                                     {"  optimizer", "/memory/2/predicted_rest_bytes"},
                                     {"total", "/predicted_rest_total_bytes"},
                                     {"sent per step", "/predicted_sent_bytes_per_rank"},
                                     {"a checkpoint on disk", "/checkpoint/disk_bytes"}})
    table.row(title, place, [](double b) { return digits(b / 1e9, 4) + " GB"; });
  if (device_memory > 0)
    table.row("fits " + human_bytes(device_memory), "/fits",
              [](bool fits) { return std::string(fits ? "yes" : "no"); });
  return str(digits(report["parameters"], 6), " parameters, ", plural(report["ranks"], "rank"),
             ", ", std::string(report["precision"]), ": ", bytes.total(),
             " bytes per parameter = parameter ", bytes.parameter, " + gradient ", bytes.gradient,
             " + optimizer ", bytes.optimizer.state + bytes.optimizer.master, "\n\n", table.text(),
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
    Json row = stage_json(parameters, ranks, options, stage);
    if (device_memory > 0) row["fits"] = row["predicted_rest_total_bytes"] <= double(device_memory);
    json["ok"] = json["ok"] || row.value("fits", true);
    json["stages"].push_back(std::move(row));
  }
  return {text_of(json, element_bytes(options), device_memory), json_text(json), json["ok"]};
}

}  // namespace zl::cli
