// What the documents of several commands say alike. Templates, so that the JSON library stays out
// of headers.
#pragma once

#include "stages/predict/preset_forms.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

template <class Json>
Json model_json(const RunSetup& setup) {
  const GptConfig& m = setup.spec.model;
  return {{"name", setup.model.name}, {"n_layer", m.layers},        {"n_head", m.heads},
          {"n_embd", m.width},        {"block_size", m.block_size}, {"vocab_size", m.vocab}};
}

template <class Json>
Json data_json(const RunSetup& setup) {
  const Windows& windows = *setup.windows;
  return {{"name", windows.data().name()},
          {"window", setup.spec.window},
          {"training_windows", windows.training()},
          {"held_out_windows", windows.held_out()}};
}

// How the documents of compare and plan begin.
template <class Json>
Json document_head(const char* command, const GptTrainingSpec& spec) {
  return {{"schema", 1},
          {"command", command},
          {"ok", true},
          {"ranks", spec.ranks},
          {"parameters", spec.model.parameters()},
          {"steps", spec.steps},
          {"precision", precision_name(spec.engine.precision)}};
}

template <class Json>
Json out_of_memory_json(const OutOfMemory& o) {
  return {{"rank", o.rank},
          {"pool", name(o.pool)},
          {"unit", o.unit},
          {"phase", o.phase},
          {"asked", o.asked}};
}

// [B] of rank 0 in a list by rank, such as peak_host_bytes; 0 where a stage has none.
template <class Json>
int64_t of_rank_0(const Json& stage, const std::string& key) {
  return stage.contains(key) ? stage[key][0].template get<int64_t>() : 0;
}

enum class Columns { measured, predicted, both };

template <class Json>
Json memory_json(const std::vector<MemoryRow>& rows, Columns columns) {
  Json list = Json::array();
  for (const MemoryRow& r : rows) {
    list.push_back({{"rank", r.rank}, {"pool", name(r.pool)}, {"use", name(r.use)}});
    if (columns != Columns::predicted)
      list.back().update({{"rest_bytes", r.rest}, {"peak_bytes", r.peak}});
    list.back().update(
        {{"predicted_rest_bytes", r.predicted_rest}, {"predicted_peak_bytes", r.predicted_peak}});
  }
  return list;
}

template <class Json>
Json traffic_json(const std::vector<TrafficRow>& rows, Columns columns) {
  const bool measured = columns != Columns::predicted;
  Json list = Json::array();
  for (const TrafficRow& r : rows) {
    Json row{{"collective", name(r.collective)}, {"purpose", name(r.purpose)}};
    if (!r.group.empty()) row["group"] = r.group;
    row["calls"] = measured ? r.calls : r.predicted_calls;
    row["elements"] = measured ? r.elements : r.predicted_elements;
    if (measured) row["sent_bytes_per_rank"] = r.sent;
    row["predicted_sent_bytes_per_rank"] = r.predicted_sent;
    list.push_back(row);
  }
  return list;
}

// By rank, of a step on average.
template <class Json>
Json moves_json(const std::vector<MoveRow>& rows, int64_t steps, Columns columns) {
  Json list = Json::array();
  for (const MoveRow& r : rows) {
    list.push_back({{"rank", r.rank}, {"move", name(r.move)}});
    if (columns != Columns::predicted)
      list.back().update(
          {{"moves_per_step", r.number / steps}, {"bytes_per_step", r.bytes / steps}});
    if (columns != Columns::measured)
      list.back().update({{"predicted_moves_per_step", r.predicted_number / steps},
                          {"predicted_bytes_per_step", r.predicted_bytes / steps}});
  }
  return list;
}

// By closed formulas: nothing of it is measured.
template <class Json>
Json presets_json(const std::vector<PresetPlan>& presets) {
  Json list = Json::array();
  for (const PresetPlan& p : presets)
    list.push_back({{"preset", p.stage->name},
                    {"stage", name(p.stage->parent)},
                    {"predicted", true},
                    {"memory", memory_json<Json>(p.memory, Columns::predicted)},
                    {"communication", traffic_json<Json>(p.traffic, Columns::predicted)},
                    {"gradient_buckets", p.buckets}});
  return list;
}

}  // namespace zl::cli
