// The fused fp32 buffer of gradients: formula, run, and gpt2's published sizes.
#include "stages/residual/constant_buffers.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "nn/data/windows.h"
#include "stages/predict/prediction_rows.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

GptTrainingSpec gpt(const char* model, int ranks, StageKind stage = StageKind::zero2) {
  GptTrainingSpec spec = gpt_spec(named_gpt(model));
  spec.ranks = ranks;
  spec.engine.stage = stage;
  return spec;
}

}  // namespace

TEST_CASE("gpt2's buffer is constant with a bucket, and four bytes per parameter without",
          "[stages]") {
  // Root has (50,257 + 1,024 + 2) * 768 parameters, a block 12 * 768 * 768 + 13 * 768.
  constexpr int64_t kRoot = (50'257 + 1'024 + 2) * 768, kBlock = 12 * 768 * 768 + 13 * 768,
                    kAll = kRoot + 12 * kBlock;
  static_assert(kAll == 124'439'808);
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    const auto sizes = constant_buffers(gpt("gpt2", 4, stage));
    REQUIRE(sizes.size() == 4);
    CHECK(sizes[0].constant == 157'541'376);
    CHECK(sizes[0].here == kRoot * 4);
    CHECK(sizes[1].constant == 200'000'000);
    // Eight blocks fill the bucket of 5e7 elements; four and root are in the second.
    CHECK(sizes[1].here == (4 * kBlock + kRoot) * 4);
    CHECK(sizes[2].constant == 497'759'232);
    CHECK(sizes[2].here == kAll * 4);
    CHECK(sizes[2].shipped == 2'000'000'000);  // whole, however small the model
    CHECK((sizes[3].constant == 497'759'232 && sizes[3].shipped == 497'759'232));
    CHECK(sizes[3].here == 497'759'232);
  }
}

TEST_CASE("a model of 1.5 billion parameters needs 6 GB for a fused buffer, or 2 GB of a constant",
          "[stages]") {
  const auto sizes = constant_buffers(gpt("gpt2-xl", 64));
  CHECK(sizes[3].here / 1'000'000'000 == 6);  // section 3.2 of the paper
  CHECK(sizes[2].constant == 2'000'000'000);
  CHECK(sizes[1].constant == 200'000'000);
}

TEST_CASE("the fused buffer of a run has the size of the formula, to the byte", "[stages]") {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += char('a' + i * i % 23);
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    GptTrainingSpec spec = gpt("tiny", 3, stage);
    const Windows windows(TokenData::of_text("text", text), spec.window);
    const EngineOptions plain = spec.engine;
    const std::vector<int64_t> units = prediction_input(spec).units;
    const int64_t all = std::accumulate(units.begin(), units.end(), int64_t(0));
    spec.data = &windows;
    spec.steps = 1;
    const auto measured = [&](const EngineOptions& engine) {
      spec.engine = engine;
      return run_training(spec).ranks[2].rest.peak(MemoryUse::communication);
    };
    const auto sizes = constant_buffers(spec);
    for (const BufferSize& s : sizes) {
      CAPTURE(s.bucket);
      const int64_t elements = s.bucket == "one unit" ? 1 : s.elements;
      CHECK(measured(with_fused_buffer(plain, elements)) == s.here);
    }
    CHECK(measured(with_fused_buffer(plain, all)) == all * 4);
    CHECK(measured(with_fused_buffer(plain, 1)) ==
          *std::max_element(units.begin(), units.end()) * 4);
    // Twin: reduced as they are, gradients need no buffer.
    EngineOptions in_place = with_fused_buffer(plain, all);
    in_place.communication_data_type.reset();
    CHECK(measured(in_place) < all * 4);
  }
}
