// Model M: the small GPT of the lessons, and text for it.
//
// V = 65, T = 32, C = 32, H = 2, L = 2, B = 4: 28,576 parameters, a step of which takes
// milliseconds on any machine.
#pragma once

#include "nn/data/windows.h"
#include "stages/train/trainer.h"
#include "tutorials/lesson/lesson.h"

namespace zl::lesson {

inline constexpr int64_t kRowsM = 4;  // B: sequences of one rank's micro-batch

GptConfig model_m(int64_t layers = 2);

// [n] The units of model M, root first, from V, T, C and L alone: as they are, and padded to a
// multiple of 16 N. (Every parameter of M is a multiple of 16 elements, so that there is no padding
// between them.)
struct SizesM {
  int64_t root, block, padded_root, padded_block;
  int64_t layers;
  int64_t parameters() const { return root + layers * block; }  // the paper's Psi
  int64_t padded() const { return padded_root + layers * padded_block; }
};
SizesM sizes_m(int ranks, int64_t layers = 2);

// The text that ships, in 65 tokens: its characters numbered as they come, those after the 64th
// all 64. Windows of T = 32.
const Windows& text_m();

// Trains model M under `stage` on text_m(): 1 step, 1 micro-batch of B sequences per rank. Made for
// the lesson's --ranks,
// --seed and --step. Change what you like; the lesson must outlive it.
TrainingSpec training_m(Lesson& lesson, StageKind stage, int64_t layers = 2);

class TimeMap;

struct RunM {
  std::vector<StepRecord> steps;
  std::vector<RankReport> ranks;
  std::vector<float> weights;  // whole
};
// Runs it. If there is a map, it records rank 0, and --step stops in this run.
RunM train_m(Lesson& lesson, const TrainingSpec& spec, TimeMap* map = nullptr);

// [B] sent by one rank, whose ring factors the log has multiplied by N.
int64_t sent_bytes(const CommunicationLog& log, Collective collective, Purpose purpose, int ranks);

}  // namespace zl::lesson
