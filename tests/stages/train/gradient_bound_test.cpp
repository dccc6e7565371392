// The bound on the distance of two stages' gradients holds whatever the configuration is.
#include "stages/train/gradient_bound.h"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"
#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// A text in which few letters are frequent, so that rows of the token table are sums of many.
Windows letters_in_windows(int64_t tokens) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += char('a' + random() % 5 * (random() % 5));
  return Windows(TokenData::of_text("text", text), tokens);
}

double largest_part(const TrainingSpec& spec) {
  double largest = 0;
  for (const StageOutcome& s :
       compare_stages(spec, {StageKind::zero1, StageKind::zero2, StageKind("hsdp")}).stages)
    if (s.gradient_deviation) largest = std::max(largest, s.gradient_deviation->part_of_bound);
  return largest;
}

}  // namespace

TEST_CASE("rounding stays within its bound for configurations drawn at random", "[stages]") {
  std::mt19937 random(20);
  const auto one_of = [&](auto... values) {
    const std::array<std::common_type_t<decltype(values)...>, sizeof...(values)> all{values...};
    return all[random() % all.size()];
  };
  for (int draw = 0; draw < 6; ++draw) {
    const int64_t T = one_of(1, 7, 16);
    GptTrainingSpec spec = gpt_spec({.layers = one_of(1, 2),
                                     .heads = 2,
                                     .width = one_of(4, 12),
                                     .block_size = T,
                                     .vocab = one_of(128, 250)});
    const Windows windows = letters_in_windows(T);
    spec.data = &windows;
    spec.steps = 1;
    spec.engine.accumulation = one_of(2, 3, 5);
    spec.ranks = spec.engine.ranks_per_node = one_of(1, 2, 3, 4);
    spec.micro_batch = one_of(1, 5, 64, 150);
    spec.engine.precision = one_of(Dtype::f32, Dtype::bf16, Dtype::f16);
    if (spec.ranks % 2 == 0) spec.engine.ranks_per_node = 2;
    if (one_of(0, 1)) spec.engine.grad_accum_dtype = Dtype::f32;
    if (one_of(0, 1)) spec.engine.communication_data_type = one_of(Dtype::f32, Dtype::bf16);
    CAPTURE(draw, T, name(spec.engine.precision), spec.micro_batch, spec.engine.accumulation,
            spec.ranks);
    CHECK(largest_part(spec) < 1);
  }
}
