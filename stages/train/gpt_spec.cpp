#include "stages/train/gpt_spec.h"

namespace zl {

GptTrainingSpec gpt_spec(const GptConfig& model, int64_t window, Recompute recompute,
                         int64_t checkpoints, const TrainingSpec& others) {
  GptTrainingSpec spec{others, model};
  spec.window = window ? window : model.block_size;
  require_input(spec.window <= model.block_size, "a window of ", spec.window,
                " tokens does not fit block-size ", model.block_size);
  spec.make_model = [=] { return std::make_unique<Gpt>(model, recompute, checkpoints); };
  if (recompute == Recompute::full)
    spec.checkpointed_rows.assign(size_t(checkpoints > 0 ? checkpoints : model.layers),
                                  spec.window * model.width);
  spec.input_row = spec.target_row = {spec.window};
  return spec;
}

}  // namespace zl
