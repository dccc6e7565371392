// Model M: the small GPT of the lessons, text for it, and its training under any stage.
//
// V = 65, T = 32, C = 32, H = 2, L = 2, B = 4: 28,576 parameters, a step of which takes
// milliseconds on any machine.
#pragma once

#include <vector>

#include "nn/data/windows.h"
#include "nn/gpt.h"
#include "stages/train/trainer.h"
#include "tutorials/lesson/lesson.h"

namespace zl::lesson {

inline constexpr int64_t kRowsM = 4;  // B: sequences of one rank's micro-batch

GptConfig model_m(int64_t layers = 2);

// [n] The units of model M, root first, from V, T, C and L alone: without padding, and padded to a
// multiple of 16 N. (Every parameter of M is a multiple of 16 elements, so that there is no padding
// between them.)
struct SizesM {
  int64_t root, block, padded_root, padded_block;
  int64_t layers;
  int64_t parameters() const { return root + layers * block; }  // the paper's Psi
  int64_t padded() const { return padded_root + layers * padded_block; }
};
SizesM sizes_m(int ranks, int64_t layers = 2);

// The text that ships, in sequences of T = 32 from 65 tokens: its bytes modulo 65.
const Windows& text_m();

// Trains model M on text_m(): 1 step, 1 micro-batch of B sequences per rank, with --ranks and
// --seed. Change what you like; the lesson must outlive it.
TrainingSpec training_m(Lesson& lesson, StageKind stage, int64_t layers = 2);

// What a run did. `gradient` and `position` are rank 0's; under zero2 and zero3 the gradient is
// empty, because no rank has it in full after backward, and under zero1 only rank 0's slice is
// reduced.
struct RunM : TrainingResult {
  std::vector<std::vector<float>> weights;  // by rank: the full parameters, as the rank has them
  std::vector<float> gradient;              // of step 1, unpadded, where rank 0 has it in full
  RunPosition position;                     // at the end
};
// At a rank's start: records it for --step.
void watch(Lesson& lesson, Trainer& rank);
// `recorded`: for --step and unit_map(). `after_step`: called on every rank. `rank0`: sees rank 0's
// events from its first step on, on rank 0's thread.
RunM train_m(Lesson& lesson, const TrainingSpec& spec, bool recorded = false,
             const std::function<void(Trainer&)>& after_step = {},
             const EventStream::Listener& rank0 = {});

// How many ranks have different weights: 1 if all have the same bits.
int64_t different_weights(const RunM& run);
// |a - b| / |b|, both as vectors, in fp64: how far one gradient is from another, as a part of its
// length.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

// [B] sent by one rank in calls of this kind and purpose.
int64_t sent_bytes(const RankReport& rank, Collective collective, Purpose purpose);
// [B] sent by one rank in all calls for parameters and gradients.
int64_t sent_for_states(const RankReport& rank);

}  // namespace zl::lesson
