// Generates text with a GPT: one token after the other, each drawn from the predicted distribution.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "nn/gpt.h"

namespace zl {

struct SampleOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  // Draws only from the k most likely tokens; of equally likely ones the lower ids. 0: all.
  int64_t top_k = 0;
  uint64_t seed = 1337;
  std::function<void()> poll = {};  // called before each token; what it throws ends generate()
};

// Draws a token from softmax(logits / temperature) with random number `index` of the seed. A pure
// function. Throws InputError if an option is negative or not finite, and if the logits contain NaN
// or have no finite maximum.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, int64_t index);

// Generates the n tokens that follow `prompt`. The model's input is the last block_size tokens so
// far; new token i uses random number i. `memory` is the parameters' Memory, on the CPU or a GPU.
// Throws InputError if the prompt is empty or contains a token outside the vocabulary.
std::vector<int32_t> generate(Gpt& model, UnitObserver& observer, Memory& memory,
                              std::span<const int32_t> prompt, int64_t n,
                              const SampleOptions& options);

}  // namespace zl
