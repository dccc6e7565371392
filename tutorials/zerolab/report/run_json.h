// What the documents of several commands say alike. Templates, so that the JSON library stays out
// of headers.
#pragma once

#include "stages/predict/plan.h"
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

// Of plan: what a checkpoint takes, and what each way of writing takes on the host.
template <class Json>
Json checkpoint_json(const CheckpointBytes& bytes) {
  return {{"disk_bytes", bytes.disk},
          {"host_bytes",
           {{"wait", bytes.buffer}, {"still", bytes.buffer}, {"snapshot", bytes.snapshot}}}};
}

// ---- rows of memory, traffic and moves ---------------------------------------------------------

// A key of a row, and the column that it takes.
template <class Row>
struct RowKey {
  const char* key;
  int64_t Row::*column;
  bool predicted = false;
};
inline constexpr RowKey<MemoryRow> kMemoryKeys[] = {
    {"rest_bytes", &MemoryRow::rest},
    {"peak_bytes", &MemoryRow::peak},
    {"predicted_rest_bytes", &MemoryRow::predicted_rest, true},
    {"predicted_peak_bytes", &MemoryRow::predicted_peak, true}};
// The first column of a key counts: those of a plan, which measures nothing, are predicted.
inline constexpr RowKey<TrafficRow> kTrafficKeys[] = {
    {"calls", &TrafficRow::calls},
    {"elements", &TrafficRow::elements},
    {"sent_bytes_per_rank", &TrafficRow::sent},
    {"calls", &TrafficRow::predicted_calls, true},
    {"elements", &TrafficRow::predicted_elements, true},
    {"predicted_sent_bytes_per_rank", &TrafficRow::predicted_sent, true}};
inline constexpr RowKey<MoveRow> kMoveKeys[] = {
    {"moves_per_step", &MoveRow::number},
    {"bytes_per_step", &MoveRow::bytes},
    {"predicted_moves_per_step", &MoveRow::predicted_number, true},
    {"predicted_bytes_per_step", &MoveRow::predicted_bytes, true}};

enum class Columns { measured, predicted, both };

template <class Json, class Row>
void add_columns(Json& json, const Row& row, const auto& keys, Columns columns, int64_t steps = 1) {
  for (const RowKey<Row>& k : keys)
    if (columns == Columns::both || (columns == Columns::predicted) == k.predicted)
      json.emplace(k.key, row.*k.column / steps);
}

template <class Json>
Json memory_json(const std::vector<MemoryRow>& rows, Columns columns) {
  Json list = Json::array();
  for (const MemoryRow& row : rows) {
    list.push_back({{"rank", row.rank}, {"pool", name(row.pool)}, {"use", name(row.use)}});
    add_columns(list.back(), row, kMemoryKeys, columns);
  }
  return list;
}

template <class Json>
Json traffic_json(const std::vector<TrafficRow>& rows, Columns columns) {
  Json list = Json::array();
  for (const TrafficRow& row : rows) {
    list.push_back({{"collective", name(row.collective)}, {"purpose", name(row.purpose)}});
    if (!row.group.empty()) list.back()["group"] = row.group;
    add_columns(list.back(), row, kTrafficKeys, columns);
  }
  return list;
}

// By rank, of a step on average.
template <class Json>
Json moves_json(const std::vector<MoveRow>& rows, int64_t steps, Columns columns) {
  Json list = Json::array();
  for (const MoveRow& row : rows) {
    list.push_back({{"rank", row.rank}, {"move", name(row.move)}});
    add_columns(list.back(), row, kMoveKeys, columns, steps);
  }
  return list;
}

}  // namespace zl::cli
