// What the documents of several commands say alike. Templates, so that the
// JSON library stays out of headers.
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

// Moves between memory spaces by rank, of a step on average. Of train, which predicts nothing, the
// measured columns; of plan the predicted ones; of compare both.
enum class MoveColumns { measured, predicted, both };
template <class Json>
Json moves_json(const std::vector<MoveRow>& rows, int64_t steps, MoveColumns columns) {
  Json list = Json::array();
  for (const MoveRow& row : rows) {
    Json json{{"rank", row.rank}, {"move", name(row.move)}};
    if (columns != MoveColumns::predicted)
      json.update({{"moves_per_step", row.number / steps}, {"bytes_per_step", row.bytes / steps}});
    if (columns != MoveColumns::measured)
      json.update({{"predicted_moves_per_step", row.predicted_number / steps},
                   {"predicted_bytes_per_step", row.predicted_bytes / steps}});
    list.push_back(json);
  }
  return list;
}

}  // namespace zl::cli
