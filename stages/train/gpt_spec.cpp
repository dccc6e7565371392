#include "stages/train/gpt_spec.h"

namespace zl {

GptTrainingSpec gpt_spec(const GptConfig& model, int64_t window, Recompute recompute) {
  GptTrainingSpec spec;
  spec.model = model;
  spec.window = window ? window : model.block_size;
  spec.recompute = recompute;
  require_input(spec.window <= model.block_size, "a window of ", spec.window,
                " tokens does not fit block-size ", model.block_size);
  spec.make_model = [model, recompute] { return std::make_unique<Gpt>(model, recompute); };
  spec.input_row = spec.target_row = {spec.window};
  return spec;
}

}  // namespace zl
