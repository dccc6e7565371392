#include "tutorials/lesson/model_m.h"

#include <array>

#include "nn/data/corpus.h"
#include "tutorials/lesson/time_map.h"

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

GptConfig model_m(int64_t layers) {
  return {.layers = layers, .heads = 2, .width = 32, .block_size = 32, .vocab = kTokens};
}

SizesM sizes_m(int ranks, int64_t layers) {
  const GptConfig m = model_m(layers);
  const int64_t V = m.vocab, T = m.block_size, C = m.width, multiple = 16 * ranks;
  const auto pad = [&](int64_t n) { return (n + multiple - 1) / multiple * multiple; };
  const int64_t root = V * C + T * C + 2 * C;  // token embedding, positions, last norm
  const int64_t block = 12 * C * C + 13 * C;   // norms 4C, attention 4C^2 + 4C, mlp 8C^2 + 5C
  return {.root = root,
          .block = block,
          .padded_root = pad(root),
          .padded_block = pad(block),
          .layers = layers};
}

RunM train_m(Lesson& lesson, const TrainingSpec& spec, TimeMap* map) {
  std::vector<float> weights;
  TrainingResult result =
      run_training(spec, {.at_start =
                              [&](RankTraining& training) {
                                const Stage& stage = training.engine().stage();
                                if (!map) return;
                                lesson.watch(training.comm(), training.memory(), &stage,
                                             &training.model().units());
                                if (training.comm().rank() == 0)
                                  map->watch(training.comm(), stage, training.model().units());
                              },
                          .on_step = {},
                          .at_end =
                              [&](RankTraining& training) {
                                lesson.unwatch(training.comm());
                                std::vector<float> all = collect_weights(training);
                                if (training.comm().rank() == 0) weights = std::move(all);
                              }});
  return {std::move(result.steps), std::move(result.ranks), std::move(weights)};
}

int64_t sent_bytes(const CommunicationLog& log, Collective collective, Purpose purpose, int ranks) {
  const auto row = log.rows().find({collective, purpose});
  return row == log.rows().end() ? 0 : row->second.sent_bytes_times_n / ranks;
}

const Windows& text_m() {
  static const Windows windows(
      TokenData::of_text("the text that ships, in 65 tokens", in_65_tokens(default_corpus())),
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
