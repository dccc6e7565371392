#include "stages/train/gpt_spec.h"

namespace zl {

GptTrainingSpec gpt_spec(const GptConfig& model, int64_t window, Recompute recompute,
                         int64_t checkpoints, const TrainingSpec& others) {
  GptTrainingSpec spec{others, model};
  spec.window = window ? window : model.block_size;
  require_input(spec.window <= model.block_size, "a window of ", spec.window,
                " tokens does not fit block-size ", model.block_size);
  spec.make_model = [=] { return std::make_unique<Gpt>(model, recompute, checkpoints); };
  const int64_t checkpointed = checkpoints > 0 ? checkpoints : model.layers;
  spec.checkpointed_rows.assign(recompute == Recompute::full ? size_t(checkpointed) : 0,
                                spec.window * model.width);
  spec.input_row = spec.target_row = {spec.window};
  return spec;
}

}  // namespace zl
