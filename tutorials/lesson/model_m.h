// Model M: the small GPT of the lessons, and text for it.
//
// V = 65, T = 32, C = 32, H = 2, L = 2, B = 4: 28,576 parameters, a step of which takes milliseconds on any machine.
#pragma once

#include "nn/windows.h"
#include "stages/training.h"
#include "tutorials/lesson/lesson.h"

namespace zl::lesson {

inline constexpr int64_t kRowsM = 4;  // B: sequences of one rank's micro-batch

GptConfig model_m(int64_t layers = 2);

// The text that ships, in 65 tokens: its characters numbered as they come, those after the 64th all 64. Windows of T = 32.
const Windows& text_m();

// Trains model M under `stage` on text_m(): 1 step, 1 micro-batch of B sequences per rank. Made for the lesson's --ranks,
// --seed and --step. Change what you like; the lesson must outlive it.
TrainingSpec training_m(Lesson& lesson, StageKind stage, int64_t layers = 2);

}  // namespace zl::lesson
