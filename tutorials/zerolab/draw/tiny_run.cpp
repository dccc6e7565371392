#include "tutorials/zerolab/draw/tiny_run.h"

#include "stages/train/gpt_spec.h"

namespace zl::draw {
namespace {

class CountedTokens final : public BatchSource {
 public:
  static constexpr int64_t kTokens = 32;  // of a row
  Shape input_row() const override { return {kTokens}; }
  Shape target_row() const override { return {kTokens}; }
  void fill_rows(int64_t first, std::span<int32_t> inputs,
                 std::span<int32_t> targets) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = int32_t((first * kTokens + int64_t(i)) % 65);
      targets[i] = (inputs[i] + 1) % 65;
    }
  }
};

}  // namespace

GptConfig lesson_model() {
  return {.layers = 2, .heads = 2, .width = 32, .block_size = 32, .vocab = 65};
}

TrainingSpec tiny_spec(StageKind stage, int ranks, const GptConfig& model, int64_t rows,
                       Recompute recompute) {
  static const CountedTokens tokens;
  TrainingSpec spec = gpt_spec(model, CountedTokens::kTokens, recompute);
  spec.engine.stage = stage;
  spec.micro_batch = rows;
  spec.steps = 1;
  spec.ranks = ranks;
  spec.data = &tokens;
  return spec;
}

}  // namespace zl::draw
