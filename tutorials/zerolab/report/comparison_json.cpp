#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string hexadecimal(uint64_t value) { return format("%016llx", (unsigned long long)value); }

Json out_of_memory(const OutOfMemory& o) {
  return {{"rank", o.rank},
          {"pool", name(o.pool)},
          {"unit", o.unit},
          {"phase", o.phase},
          {"asked", o.asked}};
}

// By closed formulas: nothing of it is measured.
void add_presets(Json& json, const std::vector<PresetPlan>& presets) {
  for (const PresetPlan& p : presets)
    json["presets"].push_back({{"preset", p.stage->name},
                               {"stage", name(p.stage->parent)},
                               {"predicted", true},
                               {"memory", memory_json<Json>(p.memory, Columns::predicted)},
                               {"communication", traffic_json<Json>(p.traffic, Columns::predicted)},
                               {"gradient_buckets", p.buckets}});
}

// Per step, by rank.
Json communication_time(const StageOutcome& s) {
  Json list = Json::array();
  const double per_step = 1e-9 / double(s.steps.size());
  for (const TimeSpent& time : s.communication)
    list.push_back({{"rank", list.size()},
                    {"seconds", double(time.nanoseconds) * per_step},
                    {"hidden_seconds", double(time.hidden()) * per_step},
                    {"exposed_seconds", double(time.exposed) * per_step}});
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
    loss.push_back(step.loss);
    norm.push_back(step.grad_norm);
  }
  json.update({{"loss", loss},
               {"grad_norm", norm},
               {"weights_hash", hexadecimal(s.weights_hash)},
               {"bitwise_equal_to_ddp", s.bitwise_equal_to_ddp},
               {"max_abs_difference_to_ddp", s.max_abs_difference_to_ddp},
               {"promised_equal_to", name(s.promised_equal_to)},
               {"bitwise_equal", s.bitwise_equal}});
  if (s.weights_part_of_bound) json["weights_part_of_bound"] = *s.weights_part_of_bound;
  if (const auto& d = s.gradient_deviation)
    json["gradient_deviation"] = {{"part_of_bound", d->part_of_bound},
                                  {"rank", d->rank},
                                  {"parameter", d->parameter},
                                  {"element", d->element},
                                  {"value", d->value},
                                  {"value_of_ddp", d->value_of_ddp}};
  if (s.diagnosis.found())
    json["diagnosis"] = {{"meaning", s.diagnosis.meaning}, {"evidence", s.diagnosis.evidence}};
  json["memory"] = memory_json<Json>(s.memory, Columns::both);
  json.update({{"peak_total_bytes", s.peak_total},
               {"predicted_peak_total_bytes", s.predicted_peak_total},
               {"init_peak_total_bytes", s.init_peak_total}});
  if (std::ranges::any_of(s.peak_host, [](int64_t bytes) { return bytes > 0; }))
    json.update(
        {{"peak_host_bytes", s.peak_host}, {"predicted_peak_host_bytes", s.predicted_peak_host}});
  json["communication"] = traffic_json<Json>(s.traffic, Columns::both);
  if (!s.moves.empty())
    json["moves"] = moves_json<Json>(s.moves, int64_t(s.steps.size()), Columns::both);
  json["seconds_per_step"] = s.seconds_per_step;
  json["communication_time"] = communication_time(s);
  return json;
}

Json head(const char* command, const GptTrainingSpec& spec) {
  return {{"schema", 1},
          {"command", command},
          {"ok", true},
          {"ranks", spec.ranks},
          {"parameters", spec.model.parameters()},
          {"steps", spec.steps},
          {"precision", precision_name(spec.engine.precision)}};
}

// FNV-1a-64 over the tokens that the run reads, at most one epoch: ids and targets of micro-batch
// 0, 1, … as little-endian int32.
uint64_t data_hash(const RunSetup& setup) {
  const GptTrainingSpec& spec = setup.spec;
  const int64_t rows = spec.micro_batch, T = setup.windows->block_size(),
                epoch = (setup.windows->training() + rows - 1) / rows,
                run = spec.steps * spec.engine.accumulation * readers(setup.config, spec.ranks);
  std::vector<int32_t> ids(size_t(rows * T)), targets(ids.size());
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t j = 0; j < std::min(epoch, run); ++j) {
    if (j % 1024 == 1023 && interrupt_requested()) throw Interrupted();
    setup.windows->fill_rows(j * rows, ids, targets);
    for (const auto* tokens : {&ids, &targets})
      for (const int32_t token : *tokens)
        for (int byte = 0; byte < 4; ++byte)
          hash = (hash ^ (uint32_t(token) >> (8 * byte) & 0xff)) * 0x100000001b3;
  }
  return hash;
}

// What of the configuration decides results: neither reports, nor what has a place elsewhere.
Json configuration(const RunSetup& setup) {
  static const std::regex elsewhere(
      "steps_per_print|(comms_logger|csv_monitor|tensorboard)\\..*|"
      "zerolab\\.(steps|seed|model|data)|zero_optimization\\.stage|.*batch.*|gradient_accumulation_"
      "steps");
  Json json = Json::object();
  for (const ConfigValue& value : setup.values)
    if (!std::regex_match(value.key, elsewhere))
      json[value.key] = Json::parse(value.value, nullptr, false);
  return json;
}

Json settings(const RunSetup& setup, const std::vector<StageKind>& listed) {
  const GptTrainingSpec& spec = setup.spec;
  const Config& config = setup.config;
  Json json = head("compare", spec);
  json.update({{"device", spec.device_name()},
               {"backend", name(spec.transport)},
               {"bits_promised", spec.ordered()},
               {"threads", setup.device.threads},
               {"model", model_json<Json>(setup)},
               {"data", data_json<Json>(setup)},
               {"settings",
                {{"version", kVersion},
                 {"seed", config.seed},
                 {"micro_batch", config.micro_batch},
                 {"accumulation", config.accumulation},
                 {"reduce_bucket_size", config.reduce_bucket_size},
                 {"allgather_bucket_size", config.allgather_bucket_size},
                 {"configuration", configuration(setup)}}}});
  for (const StageKind stage : all_stages())
    if (std::ranges::find(listed, stage) != listed.end())
      json["settings"]["stages"].push_back(name(stage));
  json["data"]["hash"] = hexadecimal(data_hash(setup));
  return json;
}

}  // namespace

std::string comparison_settings(const RunSetup& setup, const std::vector<StageKind>& listed) {
  return json_text(settings(setup, listed));
}

std::string comparison_json(const ComparisonReport& report) {
  const Comparison& comparison = report.comparison;
  std::vector<StageKind> listed;
  for (const StageOutcome& s : report.comparison.stages)
    if (s.listed) listed.push_back(s.stage);
  Json json = settings(report.setup, listed);
  json["ok"] = comparison.ok() && report.baseline_difference.empty();
  json["stages"] = Json::array();
  for (const StageOutcome& s : comparison.stages) json["stages"].push_back(outcome(s));
  add_presets(json, report.presets);
  if (!report.baseline.empty())
    json["baseline"] = {
        {"file", report.baseline},
        {"equal", report.baseline_difference.empty()},
        {"first_difference",
         report.baseline_difference.empty() ? Json(nullptr) : Json(report.baseline_difference)}};
  return json_text(json);
}

std::string plan_json(const std::vector<StagePlan>& plans, const std::vector<PresetPlan>& presets,
                      const GptTrainingSpec& spec) {
  Json json = head("plan", spec);
  json["steps"] = 1;
  json["as"] = spec.device_name();
  json["threads"] = compute_threads();
  json["backend"] = name(spec.transport);
  bool any_fits = false;
  json["stages"] = Json::array();
  for (const StagePlan& p : plans) {
    any_fits = any_fits || !p.out_of_memory;
    Json stage{{"stage", name(p.stage)}};
    if (p.out_of_memory) stage["out_of_memory"] = out_of_memory(*p.out_of_memory);
    if (spec.device_memory > 0 || spec.host_memory > 0) stage["fits"] = !p.out_of_memory;
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
    json["stages"].push_back(stage);
  }
  add_presets(json, presets);
  json["ok"] = any_fits;
  return json_text(json);
}

}  // namespace zl::cli
