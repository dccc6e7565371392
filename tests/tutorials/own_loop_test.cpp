// tutorials/own_loop.cpp: a training loop by hand, beside the trainer's.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>

#include "stages/train/gpt_spec.h"
#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace tutorials {
namespace {

using namespace zl;

// The rows of the program: 32 bytes of the sentence, and those one byte further on.
struct Sentence final : BatchSource {
  std::string text = "ZeRO shards the optimizer state, then the gradients, then the parameters. ";
  Shape input_row() const override { return {32}; }
  Shape target_row() const override { return {32}; }
  void fill_rows(int64_t first, std::span<int32_t> inputs,
                 std::span<int32_t> targets) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = text[(size_t(first) * 32 + i) % text.size()];
      targets[i] = text[(size_t(first) * 32 + i + 1) % text.size()];
    }
  }
};

struct Line {
  char stage[16] = "";
  double first = 0, last = 0;
  long long steps = 0, kept = 0;
};

}  // namespace

TEST_CASE("the loop by hand trains as the trainer does, under all four stages", "[tutorials]") {
  const cli::Finished done = cli::shell(std::string(ZEROLAB_TUTORIALS) + "/own_loop");
  INFO(done.out << done.err);
  REQUIRE(done.code == 0);
  const std::vector<std::string> lines = cli::lines(done.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[4] == "all stages have the same losses");

  const Sentence sentence;
  GptTrainingSpec spec = gpt_spec({.layers = 2, .heads = 2, .width = 32, .block_size = 32});
  spec.data = &sentence;
  spec.micro_batch = 4;
  spec.engine.accumulation = 2;
  spec.engine.reproducible = true;
  spec.steps = 20;
  spec.ranks = 3;
  use_reference(spec);  // the program links the core alone
  const TrainingResult trained = run_training(spec);
  const auto printed = [](double loss) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6f", loss);
    return std::string(text);
  };
  // Elements of the units, padded to 1,024 for each of 3 ranks: root, and two blocks.
  const long long full = 12'288 + 2 * 15'360,
                  kept[] = {16 * full, 8 * full + 8 * full / 3, 8 * full, 16 * full / 3};
  for (size_t s = 0; s < 4; ++s) {
    Line line;
    REQUIRE(std::sscanf(lines[s].c_str(),
                        "%15s loss %lf at step 1, %lf at step %lld; rank 0 keeps %lld B",
                        line.stage, &line.first, &line.last, &line.steps, &line.kept) == 5);
    CHECK(line.stage == std::string(name(kStages[s])));
    CHECK(std::abs(line.first - std::log(256.)) < 0.1);  // 256 tokens, all equally likely
    CHECK(line.last < line.first - 1);
    CHECK(printed(line.first) == printed(trained.steps.front().loss));
    CHECK(printed(line.last) == printed(trained.steps.back().loss));
    CHECK(line.steps == 20);
    CHECK(line.kept == kept[s]);
  }
}

}  // namespace tutorials
