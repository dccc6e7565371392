#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
  return text;
}

Json out_of_memory(const OutOfMemoryReport& o) {
  return {{"rank", o.rank},
          {"pool", name(o.pool)},
          {"unit", o.unit},
          {"phase", o.phase},
          {"asked", o.asked}};
}

// `measured`: compare has both columns, plan its predictions only.
Json memory(const std::vector<MemoryRow>& rows, bool measured) {
  Json list = Json::array();
  for (const MemoryRow& r : rows) {
    Json row{{"rank", r.rank}, {"pool", name(r.pool)}, {"use", name(r.use)}};
    if (measured) row.update({{"rest_bytes", r.rest}, {"peak_bytes", r.peak}});
    row.update(
        {{"predicted_rest_bytes", r.predicted_rest}, {"predicted_peak_bytes", r.predicted_peak}});
    list.push_back(row);
  }
  return list;
}

Json communication(const std::vector<TrafficRow>& rows, bool measured) {
  Json list = Json::array();
  for (const TrafficRow& r : rows) {
    Json row{{"collective", name(r.collective)},
             {"purpose", name(r.purpose)},
             {"calls", measured ? r.calls : r.predicted_calls},
             {"elements", measured ? r.elements : r.predicted_elements}};
    if (measured) row["sent_bytes_per_rank"] = r.sent;
    row["predicted_sent_bytes_per_rank"] = r.predicted_sent;
    list.push_back(row);
  }
  return list;
}

Json outcome(const StageOutcome& s) {
  Json json{{"stage", name(s.stage)}};
  if (s.out_of_memory) {
    json["out_of_memory"] = out_of_memory(*s.out_of_memory);
    return json;
  }
  Json loss = Json::array(), norm = Json::array();
  for (const StepRecord& step : s.steps) {
    loss.push_back(number(step.loss));
    norm.push_back(number(step.grad_norm));
  }
  json.update({{"loss", loss},
               {"grad_norm", norm},
               {"weights_hash", hexadecimal(s.weights_hash)},
               {"bitwise_equal_to_ddp", s.bitwise_equal_to_ddp},
               {"max_abs_difference_to_ddp", number(s.max_abs_difference_to_ddp)},
               {"promised_equal_to", name(s.promised_equal_to)},
               {"bitwise_equal", s.bitwise_equal}});
  json["memory"] = memory(s.memory, true);
  json.update({{"peak_total_bytes", s.peak_total},
               {"predicted_peak_total_bytes", s.predicted_peak_total},
               {"init_peak_total_bytes", s.init_peak_total}});
  if (std::ranges::any_of(s.peak_host, [](int64_t bytes) { return bytes > 0; }))
    json.update(
        {{"peak_host_bytes", s.peak_host}, {"predicted_peak_host_bytes", s.predicted_peak_host}});
  json["communication"] = communication(s.traffic, true);
  json["seconds_per_step"] = s.seconds_per_step;
  return json;
}

Json head(const char* command, const TrainingSpec& spec) {
  return {{"schema", 1},
          {"command", command},
          {"ok", true},
          {"ranks", spec.ranks},
          {"parameters", spec.model.parameters()},
          {"steps", spec.config.steps},
          {"precision", precision_name(spec.config.precision)}};
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string comparison_json(const Comparison& comparison, const TrainingSpec& spec) {
  Json json = head("compare", spec);
  json["device"] = name(spec.device);
  json["backend"] = name(spec.transport);
  json["bits_promised"] = comparison.bits_promised;
  json["ok"] = comparison.ok();
  json["stages"] = Json::array();
  for (const StageOutcome& s : comparison.stages) json["stages"].push_back(outcome(s));
  return dump(json);
}

std::string plan_json(const std::vector<StagePlan>& plans, const TrainingSpec& spec) {
  Json json = head("plan", spec);
  json["steps"] = 1;
  json["as"] = name(spec.device);
  json["backend"] = name(spec.transport);
  bool any_fits = false;
  json["stages"] = Json::array();
  for (const StagePlan& p : plans) {
    any_fits = any_fits || !p.out_of_memory;
    Json stage{{"stage", name(p.stage)}};
    if (p.out_of_memory) stage["out_of_memory"] = out_of_memory(*p.out_of_memory);
    if (spec.device_memory > 0 || spec.host_memory > 0) stage["fits"] = !p.out_of_memory;
    stage["memory"] = memory(p.memory, false);
    stage["predicted_peak_total_bytes"] = Json::array({p.peak_total});
    if (p.peak_host > 0) stage["predicted_peak_host_bytes"] = Json::array({p.peak_host});
    stage["predicted_init_peak_total_bytes"] = Json::array({p.init_peak_total});
    stage["communication"] = communication(p.traffic, false);
    json["stages"].push_back(stage);
  }
  json["ok"] = any_fits;
  return dump(json);
}

}  // namespace zl::cli
