#include "tutorials/zerolab/plan/closed_plan.h"

#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

ElementBytes element_bytes(const Options& options) {
  return {size_of(options.precision), size_of(gradient_type(options)),
          optimizer_bytes(options.optimizer, options.precision)};
}

Json closed_stage(const ClosedRun& run, StageKind stage) {
  Options options = run.options;
  options.stage = stage;
  const ModelStates states = model_states(stage, run.parameters, run.ranks, element_bytes(options));
  const SentElements sent = sent_elements(options, run.parameters, run.ranks);
  PredictionInput in{.options = options, .ranks = run.ranks, .units = {int64_t(run.parameters)}};
  in.parameters = in.units[0];
  in.options.stage = StageKind::ddp;  // all save the same
  Json json{{"stage", name(stage)},
            {"memory", Json::array()},
            {"predicted_rest_total_bytes", states.total()},
            {"predicted_sent_bytes_per_rank",
             sent.gradient * double(size_of(communication_type(options))) +
                 sent.parameter * double(size_of(options.precision))},
            {"checkpoint", checkpoint_json<Json>(checkpoint_bytes(in, DeviceKind::cpu))}};
  for (const auto& [use, bytes] : {std::pair{"parameter", states.parameter},
                                   {"gradient", states.gradient},
                                   {"optimizer", states.optimizer}})
    json["memory"].push_back(
        {{"rank", 0}, {"pool", "device"}, {"use", use}, {"predicted_rest_bytes", bytes}});
  if (run.device_memory > 0) json["fits"] = states.total() <= double(run.device_memory);
  return json;
}

std::string closed_text(const ClosedRun& run, const Json& stages) {
  const ElementBytes bytes = element_bytes(run.options);
  StageColumns table(stages, "model states of a rank");
  const auto gigabytes = [](double b) { return digits(b / 1e9, 4) + " GB"; };
  for (const auto& [title, place] :
       {std::pair{"  parameter", "/memory/0/predicted_rest_bytes"},
        {"  gradient", "/memory/1/predicted_rest_bytes"},
        {"  optimizer", "/memory/2/predicted_rest_bytes"},
        {"total", "/predicted_rest_total_bytes"},
        {"sent per step", "/predicted_sent_bytes_per_rank"},
        {"a checkpoint on disk", "/checkpoint/disk_bytes"},
        {"  on the host, snapshot", "/checkpoint/host_bytes/snapshot"}})
    table.row(title, place, gigabytes);
  if (run.device_memory > 0)
    table.row("fits " + human_bytes(run.device_memory), "/fits",
              [](bool fits) { return std::string(fits ? "yes" : "no"); });
  return str(digits(run.parameters, 6), " parameters, ", plural(run.ranks, "rank"), ", ",
             precision_name(run.options.precision), ": ", bytes.total(),
             " bytes per parameter = parameter ", bytes.parameter, " + gradient ", bytes.gradient,
             " + optimizer ", bytes.optimizer.state + bytes.optimizer.master, "\n\n", table.text(),
             "\nThese are model states only (GB = 1e9 bytes), as in the ZeRO paper's Table 1. "
             "Activations are added by plan --model.\n");
}

}  // namespace

ClosedPlan closed_plan(const ClosedRun& run, const std::vector<StageKind>& stages) {
  Json json{{"schema", 1},
            {"command", "plan"},
            {"ok", false},
            {"ranks", run.ranks},
            {"parameters", int64_t(run.parameters)},
            {"steps", 1},
            {"precision", precision_name(run.options.precision)}};
  for (const StageKind stage : stages) {
    json["stages"].push_back(closed_stage(run, stage));
    json["ok"] = json["ok"] || json["stages"].back().value("fits", true);
  }
  return {closed_text(run, json["stages"]), json_text(json), json["ok"]};
}

}  // namespace zl::cli
