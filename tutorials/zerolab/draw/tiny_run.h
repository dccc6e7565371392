// The runs that pictures are drawn from: one step of a tiny GPT under a stage.
#pragma once

#include "nn/gpt.h"
#include "stages/train/trainer.h"

namespace zl::draw {

// The model of the lessons: 28,576 parameters in root and two blocks.
GptConfig lesson_model();

// One step with one micro-batch of `rows` sequences per rank. The tokens are made up: neither
// memory nor traffic depends on them.
TrainingSpec tiny_spec(StageKind stage, int ranks, const GptConfig& model = lesson_model(),
                       int64_t rows = 4, Recompute recompute = Recompute::selective);

}  // namespace zl::draw
