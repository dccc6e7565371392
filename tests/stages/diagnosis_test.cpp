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
  const int64_t position = g.layout.position(1, 5);
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

TEST_CASE("micro-batches and ranks that are missing are named", "[stages]") {
  const Gradients g;
  const auto mean_of = [&](size_t a) {
    FlatValues mean(size_t(g.layout.size()), 0.0f);
    for (const FlatValues& values : g.alone[a])
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += values[i] / 3;
    return mean;
  };
  CHECK_THAT(g.diagnose(g.shards(mean_of(1))).meaning,
             StartsWith("only the last micro-batch's gradient is there"));
  CHECK_THAT(g.diagnose(g.shards(mean_of(0))).meaning,
             StartsWith("only the first micro-batch's gradient is there"));
  FlatValues grown = g.right();
  const FlatValues first = mean_of(0);
  for (size_t i = 0; i < grown.size(); ++i) grown[i] += first[i];
  CHECK_THAT(g.diagnose(g.shards(grown)).meaning, StartsWith("grows with each micro-batch"));
  std::vector<FlatValues> own;
  for (size_t r = 0; r < 3; ++r) {
    FlatValues sum = g.alone[0][r];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += g.alone[1][r][i];
    own.push_back(g.layout.shards(sum, int(r)));
  }
  CHECK_THAT(g.diagnose(own).meaning,
             ContainsSubstring("its local data only: it was never reduced"));
}

TEST_CASE("a rank that takes another rank's shard is named", "[stages]") {
  const Gradients g;
  const FlatValues first = g.layout.shards(g.right(), 0), second = g.layout.shards(g.right(), 1);
  CHECK(g.diagnose({first, first, first}).meaning ==
        "right on rank 0 only: every rank takes the first shard");
  CHECK(g.diagnose({first, second, second}).meaning ==
        "right on ranks 0 and 1 only: rank 2 takes the shard of rank 1");
}

TEST_CASE("weights that were updated in part are told apart", "[stages]") {
  const Gradients g;
  const FlatValues before = g.right(), after = g.right(1.5f);
  const auto diagnose = [&](const std::vector<FlatValues>& of_ranks) {
    return diagnose_weights({g.layout, before, after}, of_ranks);
  };
  CHECK_FALSE(diagnose({after, after, after}).found());
  CHECK_THAT(diagnose({before, before, before}).meaning, StartsWith("no parameter has changed"));
  // Element i of rank r's shards comes from one vector, the others' from the other.
  const auto mixed = [&](const FlatValues& own, const FlatValues& others, int rank) {
    FlatValues all = others;
    for (int64_t i = 0; i < g.layout.size() / 3; ++i) {
      const size_t at = size_t(g.layout.position(rank, i));
      all[at] = own[at];
    }
    return all;
  };
  CHECK_THAT(
      diagnose({mixed(after, before, 0), mixed(after, before, 1), mixed(after, before, 2)}).meaning,
      ContainsSubstring("were not all-gathered after the update"));
  const FlatValues first = mixed(after, before, 0), two = mixed(before, after, 2);
  CHECK_THAT(diagnose({first, first, first}).meaning,
             StartsWith("only the first shard has changed"));
  CHECK_THAT(diagnose({two, two, two}).meaning,
             StartsWith("only the shards of ranks 0 and 1 have changed"));
  CHECK_THAT(diagnose({after, after, before}).meaning, ContainsSubstring("different parameters"));
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
