// What the documents of train and compare say alike about model and data. Templates, so that the
// JSON library stays out of headers.
#pragma once

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

}  // namespace zl::cli
