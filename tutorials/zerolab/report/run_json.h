// What the documents of several commands say alike. Templates, so that the
// JSON library stays out of headers.
#pragma once

#include "stages/predict/closed_form.h"
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

}  // namespace zl::cli
