// Lets a GPT write: one token after the other, each drawn from the distribution that the model
// predicts.
#pragma once

#include <span>
#include <vector>

#include "nn/gpt.h"

namespace zl {

struct SampleOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;  // draws among the k most likely tokens only; of equal ones the lower token is
                      // more likely. 0: all
  uint64_t seed = 1337;
};

// The token drawn from softmax(logits / temperature) with random number `index` of the seed. A pure
// function. Throws InputError for options that are not numbers or negative, and if the logits have
// no finite maximum.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, int64_t index);

// The n tokens that follow `prompt`, without tape. The model sees the last block_size tokens of
// what is there; the i-th new token uses random number i. Works on the CPU and on GPUs; `memory` is
// where the parameters are. Throws InputError if the prompt is empty or holds a token that the
// vocabulary does not have.
std::vector<int32_t> generate(Gpt& model, UnitObserver& observer, Memory& memory,
                              std::span<const int32_t> prompt, int64_t n,
                              const SampleOptions& options);

}  // namespace zl
