// A GPT as the model of a run.
#pragma once

#include "nn/formats/named_gpt.h"
#include "stages/train/trainer.h"

namespace zl {

// A spec, and what reports tell about its model.
struct GptTrainingSpec : TrainingSpec {
  GptConfig model;
  int64_t window = 0;  // tokens of a row
};

// The model's part of a spec: make_model and the rows, sequences of `window` tokens (0:
// block_size). `recompute` and `checkpoints`: as Gpt's constructor takes them; `others`: the other
// parts. Throws InputError if the rows do not fit the model.
GptTrainingSpec gpt_spec(const GptConfig& model, int64_t window = 0,
                         Recompute recompute = Recompute::selective, int64_t checkpoints = 0,
                         const TrainingSpec& others = {});

}  // namespace zl
