// What a wrong gradient and wrong weights mean: values as each mistake yields them, and the
// sentence for them.
#include "stages/diagnosis/diagnosis.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

// Three ranks, two micro-batches: the gradients of each alone, made of small whole numbers.
struct Gradients {
  static constexpr int ranks = 3, micro_batches = 2;
  OddModel model{OddModelOptions{}};
  FlatLayout layout{model.units(), ranks};
  std::vector<std::vector<FlatValues>> alone;

  Gradients() {
    for (int a = 0; a < micro_batches; ++a) {
      alone.emplace_back();
      for (int r = 0; r < ranks; ++r) {
        FlatValues values(size_t(layout.size()), 0.0f);
        for (size_t i = 0; i < values.size(); ++i)
          if (!layout.text(int64_t(i)).starts_with("the padding"))
            values[i] = float(3 * (int(i * 7 + size_t(a) * 31 + size_t(r) * 17) % 23 - 11));
        alone.back().push_back(values);
      }
    }
  }

  // The sum over micro-batches of the mean over ranks, times `factor`.
  FlatValues right(float factor = 1) const {
    FlatValues sum(size_t(layout.size()), 0.0f);
    for (const auto& of_ranks : alone)
      for (const FlatValues& values : of_ranks)
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * values[i] / ranks;
    return sum;
  }
  std::vector<FlatValues> shards(const FlatValues& full) const {
    std::vector<FlatValues> all;
    for (int r = 0; r < ranks; ++r) all.push_back(layout.shards(full, r));
    return all;
  }
  Diagnosis diagnose(const std::vector<FlatValues>& of_ranks) const {
    return diagnose_gradient({layout, alone}, of_ranks);
  }
};

}  // namespace

TEST_CASE("a right gradient has no diagnosis, and one element that differs has one", "[stages]") {
  const Gradients g;
  std::vector<FlatValues> shards = g.shards(g.right());
  CHECK_FALSE(g.diagnose(shards).found());
  const int64_t position = g.layout.units()[0].partition.shard() + 5;
  shards[1][5] += 40;
  const Diagnosis d = g.diagnose(shards);
  CHECK_THAT(d.meaning, StartsWith("in root only: ") || StartsWith("right on ranks 0 and 2 only"));
  CHECK_THAT(d.evidence, ContainsSubstring(g.layout.text(position) + " on rank 1 is "));
}

TEST_CASE("a common factor of all gradients is named with what it means", "[stages]") {
  const Gradients g;
  const auto meaning = [&](float factor) { return g.diagnose(g.shards(g.right(factor))).meaning; };
  CHECK_THAT(meaning(3), ContainsSubstring("3.00 x ddp's: a sum over ranks, not a mean"));
  CHECK_THAT(meaning(1.0f / 3), ContainsSubstring("divided by the number of ranks twice"));
  CHECK_THAT(meaning(0.5f), ContainsSubstring("the number of micro-batches"));
  CHECK_THAT(meaning(2), ContainsSubstring("added twice"));
  CHECK_THAT(meaning(0), ContainsSubstring("every gradient is zero"));
  CHECK_THAT(meaning(5), ContainsSubstring("every gradient is 5 x ddp's"));
}

TEST_CASE("a rank that takes another rank's shard is named", "[stages]") {
  const Gradients g;
  const FlatValues first = g.layout.shards(g.right(), 0), second = g.layout.shards(g.right(), 1);
  CHECK(g.diagnose({first, first, first}).meaning ==
        "right on rank 0 only: every rank takes the first shard");
  CHECK(g.diagnose({first, second, second}).meaning ==
        "right on ranks 0 and 1 only: rank 2 takes the shard of rank 1");
}

TEST_CASE("no stage of the library has a diagnosis", "[stages]") {
  const StageRunSpec odd{.stage = any_stage(),
                         .ranks = GENERATE(1, 3),
                         .micro_batches = GENERATE(1, 3),
                         .model = {.block_twice = true, .unused_parameter = true}};
  const auto data = odd_data(odd);
  TrainingSpec spec = training_spec(odd, *data);
  spec.engine.precision = GENERATE(Dtype::f32, Dtype::bf16);
  const Diagnosis d = diagnose_stage(spec);
  CAPTURE(d.meaning, d.evidence);
  CHECK_FALSE(d.found());
}
