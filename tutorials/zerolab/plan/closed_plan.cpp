#include "tutorials/zerolab/plan/closed_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {
namespace {

std::string gigabytes(double bytes) { return digits(bytes / 1e9, 4) + " GB"; }

}  // namespace

ElementBytes ClosedPlan::bytes() const {
  return {size_of(options.precision), size_of(gradient_type(options)),
          optimizer_bytes(options.optimizer, options.precision)};
}

double ClosedPlan::sent_bytes(StageKind stage) const {
  Options of_stage = options;
  of_stage.stage = stage;
  const SentElements sent = sent_elements(of_stage, parameters, ranks);
  return sent.gradient * double(size_of(communication_type(options))) +
         sent.parameter * double(size_of(options.precision));
}

CheckpointBytes ClosedPlan::checkpoint() const {
  const auto n = int64_t(parameters);
  PredictionInput in{.options = options, .ranks = ranks, .units = {n}, .parameters = n};
  in.options.stage = StageKind::ddp;  // all save the same
  return checkpoint_bytes(in, DeviceKind::cpu);
}

bool ClosedPlan::any_fits(const std::vector<StageKind>& stages) const {
  return device_memory == 0 || std::ranges::any_of(stages, [this](StageKind s) { return fits(s); });
}

std::string closed_text(const ClosedPlan& plan, const std::vector<StageKind>& stages) {
  const ElementBytes bytes = plan.bytes();
  std::string text =
      str(digits(plan.parameters, 6), " parameters, ", plural(plan.ranks, "rank"), ", ",
          precision_name(plan.options.precision), ": ", bytes.total(),
          " bytes per parameter = parameter ", bytes.parameter, " + gradient ", bytes.gradient,
          " + optimizer ", bytes.optimizer.state + bytes.optimizer.master, "\n\n");
  TextTable table;
  const auto row = [&](const std::string& title, const auto& cell) {
    std::vector<std::string> cells = {title};
    for (const StageKind stage : stages) cells.push_back(cell(stage));
    table.row(cells);
  };
  row("model states of a rank", [](StageKind s) { return std::string(name(s)); });
  row("  parameter", [&](StageKind s) { return gigabytes(plan.of(s).parameter); });
  row("  gradient", [&](StageKind s) { return gigabytes(plan.of(s).gradient); });
  row("  optimizer", [&](StageKind s) { return gigabytes(plan.of(s).optimizer); });
  row("total", [&](StageKind s) { return gigabytes(plan.of(s).total()); });
  row("sent per step", [&](StageKind s) { return gigabytes(plan.sent_bytes(s)); });
  row("a checkpoint on disk", [&](StageKind) { return gigabytes(double(plan.checkpoint().disk)); });
  row("  on the host, snapshot",
      [&](StageKind) { return gigabytes(double(plan.checkpoint().snapshot)); });
  if (plan.device_memory > 0)
    row("fits " + human_bytes(plan.device_memory),
        [&](StageKind s) { return std::string(plan.fits(s) ? "yes" : "no"); });
  text += table.text() +
          "\nThese are model states only (GB = 1e9 bytes), as in the ZeRO paper's Table 1. "
          "Activations are added by plan --model.\n";
  if (plan.device_memory == 0) return text;
  const auto fits = std::ranges::find_if(stages, [&](StageKind s) { return plan.fits(s); });
  if (fits == stages.end())
    return text + "The model states of no listed stage fit. Try more ranks.\n";
  const bool first_sends_least = std::none_of(
      fits, stages.end(), [&](StageKind s) { return plan.sent_bytes(s) < plan.sent_bytes(*fits); });
  return text + str("The model states of ", name(*fits), " fit",
                    first_sends_least ? ", and no later stage sends less.\n" : ".\n");
}

std::string closed_json(const ClosedPlan& plan, const std::vector<StageKind>& stages) {
  using Json = nlohmann::ordered_json;
  Json json{{"schema", 1},
            {"command", "plan"},
            {"ok", plan.any_fits(stages)},
            {"ranks", plan.ranks},
            {"parameters", int64_t(plan.parameters)},
            {"steps", 1},
            {"precision", precision_name(plan.options.precision)}};
  for (const StageKind s : stages) {
    const ModelStates m = plan.of(s);
    Json rows = Json::array();
    for (const auto& [use, bytes] : {std::pair{"parameter", m.parameter},
                                     {"gradient", m.gradient},
                                     {"optimizer", m.optimizer}})
      rows.push_back(
          {{"rank", 0}, {"pool", "device"}, {"use", use}, {"predicted_rest_bytes", bytes}});
    Json stage{{"stage", name(s)},
               {"memory", rows},
               {"predicted_rest_total_bytes", m.total()},
               {"predicted_sent_bytes_per_rank", plan.sent_bytes(s)},
               {"checkpoint", checkpoint_json<Json>(plan.checkpoint())}};
    if (plan.device_memory > 0) stage["fits"] = plan.fits(s);
    json["stages"].push_back(stage);
  }
  return json_text(json);
}

}  // namespace zl::cli
