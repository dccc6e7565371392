#include "tutorials/zerolab/report/comparison_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "tensor/random.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/stage_rows.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;
using Table = StageColumns<Json>;

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
    json["out_of_memory"] = out_of_memory_json<Json>(*s.out_of_memory);
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

// FNV-1a-64 over the tokens that the run reads, at most one epoch: ids and targets of micro-batch
// 0, 1, … as little-endian int32, which all machines of ours have.
uint64_t data_hash(const RunSetup& setup) {
  const GptTrainingSpec& spec = setup.spec;
  const int64_t rows = spec.micro_batch, T = setup.windows->block_size(),
                epoch = (setup.windows->training() + rows - 1) / rows,
                run = spec.steps * spec.engine.accumulation * spec.ranks;
  std::vector<int32_t> ids(size_t(rows * T)), targets(ids.size());
  uint64_t hash = kFnvOffset;
  for (int64_t j = 0; j < std::min(epoch, run); ++j) {
    if (j % 1024 == 1023 && interrupt_requested()) throw Interrupted();
    setup.windows->fill_rows(j * rows, ids, targets);
    for (const auto* tokens : {&ids, &targets})
      hash = fnv1a({reinterpret_cast<const char*>(tokens->data()), 4 * tokens->size()}, hash);
  }
  return hash;
}

// What of the configuration decides results: neither reports, nor what has a place elsewhere.
Json configuration(const RunSetup& setup) {
  static const std::regex elsewhere(
      "(csv_monitor|tensorboard)\\..*|"
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
  Json json = document_head<Json>("compare", spec);
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
    if (std::ranges::count(listed, stage) > 0) json["settings"]["stages"].push_back(name(stage));
  json["data"]["hash"] = hexadecimal(data_hash(setup));
  return json;
}

// ---- the table ----------------------------------------------------------------------------------

std::string equality(const Json& s, bool promised) {
  const std::string stage = s["stage"], other = s["promised_equal_to"];
  const VariantBits bits = bits_of(read_stage(stage));
  if (bits == VariantBits::lossy) return "lossy";
  if (bits == VariantBits::rounding) return "rounding";
  if (stage == other) return "-";  // the others are compared with it
  return (s["bitwise_equal"] ? "= " : promised ? "NOT " : "not ") + other;
}

void value_rows(Table& table, const Json& document) {
  table.heading();
  const auto loss = [](const Json& of_step) { return format("%#.7g", of_step.get<double>()); };
  table.row("loss, step 1", [&](const Json& s) { return loss(s["loss"].front()); });
  if (document["steps"] != 1 && table.any([](const Json&) { return true; }))
    table.row(str("loss, step ", document["steps"].get<int64_t>()),
              [&](const Json& s) { return loss(s["loss"].back()); });
  table.row("bits of losses, norms, weights",
            [&](const Json& s) { return equality(s, document["bits_promised"]); });
  table.row("largest |weight - ddp's|", "/max_abs_difference_to_ddp",
            [](double most) { return digits(most, 3); });
  for (const auto& [title, place] :
       {std::pair{"|gradient of step 1 - ddp's| / its bound", "/gradient_deviation/part_of_bound"},
        {"|gathered weight - shard's| / its bound", "/weights_part_of_bound"}}) {
    const Json::json_pointer at(place);
    const auto has = [&](const Json& s) { return s.contains(at); };
    if (table.any(has))
      table.row(title, [&](const Json& s) {
        return has(s) ? digits(s[at], 2) : s["stage"] == "ddp" ? "-" : "no bound";
      });
  }
}

// Gradients and parameters sent, in the paper's unit: (N-1)/N times the model.
std::string in_model_units(const Json& s, const GptTrainingSpec& spec) {
  int64_t bytes = 0;
  for (const char* purpose : {"parameter", "gradient"})
    bytes += sum_of<Json>(s["communication"], "sent_bytes_per_rank", {{"purpose", purpose}});
  const double model = double(spec.model.parameters()) * double(size_of(spec.engine.precision));
  return digits(spec.ranks == 1 ? 0 : double(bytes) / (model * (spec.ranks - 1) / spec.ranks), 4) +
         " Ψ";
}

// With lanes: how much of the communication cost no time, as a mean of ranks.
void time_rows(Table& table, bool lanes) {
  table.row("ms per step (median)", "/seconds_per_step",
            [](double seconds) { return milliseconds(seconds); });
  if (!lanes) return;
  for (const auto& [title, key] : {std::pair{"ms in communication (mean of ranks)", "seconds"},
                                   {"  hidden behind computation", "hidden_seconds"},
                                   {"  exposed", "exposed_seconds"}})
    table.row(title, "/communication_time", [key = key](const Json& ranks) {
      double sum = 0;
      for (const Json& rank : ranks) sum += rank[key].get<double>();
      return milliseconds(sum / double(ranks.size()));
    });
}

// ---- sentences ---------------------------------------------------------------------------------

// Whether the stage that this one must equal is wrong itself: then that one is named alone.
bool blamed_elsewhere(const StageOutcome& s, const Comparison& c) {
  return s.gradient_within_bound() && std::ranges::any_of(c.stages, [&](const StageOutcome& other) {
           return other.stage == s.promised_equal_to && !other.gradient_within_bound();
         });
}

std::string what_is_wrong(const StageOutcome& s, const Comparison& c) {
  const std::string stage = name(s.stage);
  std::string text;
  if (c.bits_promised && !s.bitwise_equal && !blamed_elsewhere(s, c))
    text += str(stage, " does not have the bits of ", name(s.promised_equal_to), ". ");
  if (s.weights_part_of_bound.value_or(0) > 1)
    text += str(stage, "'s gathered weights differ from its shards by ",
                digits(*s.weights_part_of_bound, 3), " times what 8 bits allow. ");
  if (const auto& d = s.gradient_deviation; d && d->part_of_bound > 1)
    text +=
        str(stage, "'s gradient of step 1 differs from ddp's by ", digits(d->part_of_bound, 3),
            " times what rounding allows, most in ", d->parameter, "[", d->element, "] on rank ",
            d->rank, ": ", digits(d->value, 7), ", not ", digits(d->value_of_ddp, 7), " (ratio ",
            digits(d->value / d->value_of_ddp, 4), "). ");
  if (s.diagnosis.found())
    text += str("In ", stage, " ", s.diagnosis.meaning, " (", s.diagnosis.evidence, "). ");
  if (!s.predictions_exact()) text += stage + " differs from its prediction. ";
  return text;
}

// That losses or weights are not finite, in a sentence about the first stage; "" if they are.
std::string nonfinite_text(const Comparison& c) {
  for (const StageOutcome& s : c.stages)
    if (const int64_t step = s.out_of_memory ? 0 : s.first_nonfinite(); step > 0)
      return str(name(s.stage),
                 step > int64_t(s.steps.size()) ? " ends with weights that are not finite"
                                                : str("'s loss is not finite in step ", step),
                 ", and equal bits of such numbers prove nothing: try a smaller learning rate, or "
                 "check the weights that it begins with. ");
  return "";
}

std::string verdict(const Comparison& c) {
  if (!c.any_fits())
    return "No stage fits its memory. Try more ranks, a smaller micro-batch, activation "
           "checkpointing (--set zerolab.recompute=full) or a larger limit.\n";
  if (!c.ok()) {
    std::string wrong = nonfinite_text(c);
    for (const StageOutcome& s : c.stages)
      if (!s.out_of_memory) wrong += what_is_wrong(s, c);
    return "CHECK FAILED: " + wrong + "\n";
  }
  if (!c.bits_promised)
    return "All memory and traffic is as predicted, to the byte. Bits were not compared: NCCL adds "
           "in its own order (zerolab.ordered is false), so stages may differ by rounding.\n";
  const auto any = [&](const auto& of) {
    return std::ranges::any_of(c.stages, [&](auto& s) { return !s.out_of_memory && of(s); });
  };
  const bool bounds = any([](auto& s) {
    return bits_of(s.stage) != VariantBits::equal &&
           (s.gradient_deviation || s.weights_part_of_bound);
  });
  if (!bounds && !any([](auto& s) { return s.promised_equal_to != s.stage; }))
    return "All memory and traffic is as predicted, to the byte. Bits were not compared: no two of "
           "the stages that fit promise the same.\n";
  return str("All results are bitwise equal where that is promised, ",
             bounds ? "variants that sum in another order or quantize are within their error "
                      "bounds, "
                    : "",
             "and all memory and traffic is as predicted, to the byte.\n");
}

// What a reader should know before the verdict.
std::string notes(const RunSetup& setup, const Comparison& c) {
  const int ranks = setup.spec.ranks, places = setup.device.places(ranks);
  std::string text;
  if (places < ranks && c.any_fits())
    text += str("Times say little here: ", ranks, " ranks",
                setup.device.threads > 1 ? str(" of ", setup.device.threads, " threads") : "",
                " take turns on ", plural(places, setup.device.on_gpus() ? "GPU" : "core"), ".\n");
  bool updated = !c.any_fits();
  for (const StageOutcome& s : c.stages) {
    updated = updated || !std::ranges::all_of(s.steps, &StepRecord::skipped);
    if (s.out_of_memory)
      text += str(name(s.stage), " does not fit: ", s.out_of_memory->what(), "\n");
  }
  if (!updated)
    text +=
        "All steps were skipped because no gradient was finite: the weights are the initial "
        "ones in every stage.\n";
  return text;
}

}  // namespace

ComparisonReport comparison_report(const RunSetup& setup, const Comparison& c,
                                   const std::vector<PresetPlan>& presets,
                                   const Baseline* baseline) {
  const GptTrainingSpec& spec = setup.spec;
  std::vector<StageKind> listed;
  Json stages = Json::array();
  for (const StageOutcome& s : c.stages) {
    if (s.listed) listed.push_back(s.stage);
    stages.push_back(outcome(s));
  }
  Json json = settings(setup, listed);
  const std::string difference = baseline ? baseline->first_difference(json_text(stages)) : "";
  json["ok"] = c.ok() && difference.empty();
  json["stages"] = stages;
  if (!presets.empty()) json["presets"] = presets_json<Json>(presets);
  if (baseline)
    json["baseline"] = {{"file", baseline->path()},
                        {"equal", difference.empty()},
                        {"first_difference", difference.empty() ? Json() : Json(difference)}};
  Table table(stages, str(with_commas(c.parameters), " parameters, ", plural(spec.ranks, "rank"),
                          spec.device == DeviceKind::cuda ? " on GPUs" : ""));
  value_rows(table, json);
  byte_rows(table, true);
  table.row("sent, in units of (N-1)/N model",
            [&](const Json& s) { return in_model_units(s, spec); });
  time_rows(table, rank_options(spec).lane != nullptr);
  std::string text = table.text() + "\n" + preset_text(presets) + notes(setup, c) + verdict(c);
  if (baseline)
    text += printable(difference.empty()
                          ? "The results equal those of " + baseline->path() + ".\n"
                          : "DIFFERENT from " + baseline->path() + ": " + difference + "\n");
  return {text, json_text(json), json["ok"]};
}

std::string comparison_settings(const RunSetup& setup, const std::vector<StageKind>& listed) {
  return json_text(settings(setup, listed));
}

}  // namespace zl::cli
