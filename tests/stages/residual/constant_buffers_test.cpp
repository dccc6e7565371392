// The fused fp32 buffer of gradients: formula, run, and gpt2's published sizes. The figures of the
// ZeRO paper that follow from its formulas, and those that do not.
#include "stages/residual/constant_buffers.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "stages/predict/prediction_rows.h"
#include "stages/residual/paper_figures.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

GptTrainingSpec gpt(const char* model, int ranks, StageKind stage = StageKind::zero2) {
  GptTrainingSpec spec = gpt_spec(named_gpt(model));
  spec.ranks = ranks;
  spec.engine.stage = stage;
  return spec;
}

double computed(const std::string& section, const std::string& quantity) {
  for (const PaperFigure& f : paper_figures())
    if (f.section == section && f.quantity.find(quantity) != std::string::npos) return f.computed;
  return -1;
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
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    GptTrainingSpec spec = gpt("tiny", 3, stage);
    const Windows windows = text_in_windows(spec.window);
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

TEST_CASE("the paper's figures follow from its formulas, but for those that are named",
          "[stages]") {
  std::set<std::string> deviating;
  for (PaperFigure f : paper_figures()) {
    CAPTURE(f.section, f.quantity, f.printed, f.computed);
    CHECK(f.follows() == f.deviates.empty());
    if (!f.follows()) deviating.insert(f.section);
    // The twin: another number would be noticed.
    f.computed = f.printed + 2 * f.digit;
    CHECK_FALSE(f.follows());
  }
  CHECK(deviating == std::set<std::string>{"3.2", "6.1", "Table 2"});
}

TEST_CASE("activations and checkpoints of the paper's models have these bytes", "[stages]") {
  // Computed by hand: 12 * 1600 * 32 * 1024 * 48 = 30.199e9 elements; 48 * 32 * 1024 * 1600 =
  // 2.5166e9; 125 * 32 * 1024 * 8192 = 33.554e9. Two bytes each.
  CHECK(std::abs(computed("3.2", "activations, 1.5 B") - 60.40) < 0.005);
  CHECK(std::abs(computed("3.2", "with checkpointing") - (5.03 + 1.26)) < 0.01);
  CHECK(std::abs(computed("6.1", "checkpoints, 100 B") - 67.11) < 0.005);
  CHECK(std::abs(computed("6.1", "P_a, 16-way") - 4.19) < 0.005);
  CHECK(std::abs(computed("8", "P_a") - 8.33) < 0.005);
  CHECK(std::abs(computed("Figure 1", "zero3") - 1.875) < 1e-9);
}
