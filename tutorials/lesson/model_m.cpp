#include "tutorials/lesson/model_m.h"

#include <array>

#include "nn/corpus.h"

namespace zl::lesson {
namespace {

constexpr int kTokens = 65;

std::string in_65_tokens(std::string_view text) {
  std::array<int, 256> token;
  token.fill(-1);
  int known = 0;
  std::string tokens;
  for (const char c : text) {
    int& t = token[uint8_t(c)];
    if (t < 0) t = std::min(known++, kTokens - 1);
    tokens.push_back(char(t));
  }
  return tokens;
}

}  // namespace

GptConfig model_m(int64_t layers) { return {.layers = layers, .heads = 2, .width = 32, .block_size = 32, .vocab = kTokens}; }

const Windows& text_m() {
  static const Windows windows(TokenData::of_text("the text that ships, in 65 tokens", in_65_tokens(default_corpus())),
                               model_m().block_size);
  return windows;
}

TrainingSpec training_m(Lesson& lesson, StageKind stage, int64_t layers) {
  TrainingSpec spec;
  spec.model = model_m(layers);
  spec.config.stage = stage;
  spec.config.micro_batch = kRowsM;
  spec.config.steps = 1;
  spec.config.seed = lesson.seed();
  spec.ranks = lesson.ranks();
  spec.windows = &text_m();
  spec.run_ranks = lesson.runner();
  return spec;
}

}  // namespace zl::lesson
