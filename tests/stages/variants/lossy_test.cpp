// The variants of stage 3 that communicate fewer bits: what they may lose, and what they may not.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "nn/data/windows.h"
#include "stages/schedule/step_schedule.h"
#include "stages/train/gpt_spec.h"
#include "stages/train/gradient_bound.h"
#include "stages/train/weights.h"
#include "tests/stages/variants/gradient_sums.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kGroup = 256;

// What four ranks gather of a model with these weights, and the weights. By unit, flat.
struct Gathered {
  std::vector<std::vector<float>> exact, gathered;
  bool equal_on_all_ranks = true;
};

Gathered gather(StageKind stage, int ranks, const std::function<float(int64_t)>& value) {
  Gathered result;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    OddModel model({.hidden = 131});
    const auto made = make_stage(model.units(), comm, memory, {.stage = stage});
    load_weights(*made, [&](const Parameter& p) {
      std::vector<float> values(size_t(p.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = value(int64_t(i));
      return values;
    });
    for (UnitState& u : made->units()) {
      unshard(*made, u);
      const size_t i = size_t(u.unit->index);
      const std::vector<float> full = kernel::download_floats(u.full_parameter),
                               mine = kernel::download_floats(u.parameter_shard);
      const std::lock_guard lock(mutex);
      result.exact.resize(std::max(result.exact.size(), i + 1));
      result.gathered.resize(result.exact.size());
      result.exact[i].resize(full.size());
      std::ranges::copy(mine, result.exact[i].data() + size_t(comm.rank()) * mine.size());
      if (result.gathered[i].empty()) result.gathered[i] = full;
      if (std::memcmp(result.gathered[i].data(), full.data(), full.size() * sizeof(float)) != 0)
        result.equal_on_all_ranks = false;
    }
    for (UnitState& u : made->units()) reshard(*made, u);
  });
  return result;
}

// The largest magnitude of the group of element i, where each of `shards` parts begins
// own.
double largest_of_group(const std::vector<float>& values, size_t i, int shards) {
  const size_t shard = values.size() / size_t(shards), first = i / shard * shard,
               begin = first + (i - first) / kGroup * kGroup,
               end = std::min(first + shard, begin + kGroup);
  double largest = 0;
  for (size_t e = begin; e < end; ++e) largest = std::max(largest, std::abs(double(values[e])));
  return largest;
}

double odd_value(int rank, int a, int64_t element) {
  return std::sin(double(element * 3 + rank * 11 + a * 7)) * (1 + double(element % 5));
}

// One rank, one step of three micro-batches; `at_end` is called after it.
void train_once(StageKind stage, Dtype precision, const std::function<void(Trainer&)>& at_end) {
  const Windows text(TokenData::of_text("text", std::string(300, 'a')), 9);
  GptTrainingSpec spec =
      gpt_spec({.layers = 1, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.engine.stage = stage;
  spec.engine.precision = precision;
  spec.engine.accumulation = 3;
  spec.micro_batch = 2;
  spec.steps = spec.ranks = 1;
  if (stage == StageKind("zero3_qgz")) spec.engine.ranks_per_node = 1;
  spec.data = &text;
  run_training(spec, {.at_end = at_end});
}

// The part of the bound if ddp's gradient and sum|g| are `of_ddp` everywhere and the stage's too,
// but for one group of 256, which is `spoil`ed.
struct Group {
  std::span<float> gradient, of_ddp, magnitude;
};

double part_of_bound(Trainer& trainer, float of_ddp, const std::function<void(Group)>& spoil) {
  const FlatLayout layout(trainer.model().units(), 1);
  FlatValues gradient(size_t(layout.size()), of_ddp), ddp = gradient, magnitude = gradient;
  const auto group = [](std::vector<float>& of) {
    return std::span(of).subspan(size_t(kGroup), size_t(kGroup));
  };
  spoil({group(gradient), group(ddp), group(magnitude)});
  return largest_deviation(trainer.spec(), layout, gradient, ddp, {magnitude, magnitude})
      .part_of_bound;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("a gradient that is not finite is accepted only where f16 may overflow", "[stages]") {
  train_once(StageKind("zero3_qgz"), Dtype::f16, [](Trainer& trainer) {
    const auto part = [&](float of_ddp, const std::function<void(Group)>& spoil) {
      return part_of_bound(trainer, of_ddp, spoil);
    };
    // 4 bits carry one element of a sum beyond f16, but not a small one.
    CHECK(part(65376, [](Group g) { g.gradient[17] = kInfinity; }) == 0);
    CHECK(part(65376, [](Group g) { g.gradient[17] = kNan; }) == 0);
    CHECK(part(100, [](Group g) { g.gradient[17] = kInfinity; }) > 1);
    CHECK(part(100, [](Group g) { g.gradient[17] = kNan; }) > 1);
    // An element of a micro-batch spoils its group, and no other.
    for (const float spoiled : {kInfinity, kNan}) {
      const auto one = [=](Group g) {
        g.of_ddp[3] = g.magnitude[3] = spoiled;
        std::ranges::fill(g.gradient, kNan);
      };
      CHECK(part(100, one) == 0);
      CHECK(part(100, [&](Group g) {
              one(g);
              *(g.gradient.data() + kGroup) = kNan;
            }) > 1);
    }
    // Finite elements of the same step are judged.
    CHECK(part(65376, [](Group g) {
            g.gradient[17] = kInfinity;
            std::ranges::fill(g.gradient.subspan(20), -65376.F);
          }) > 1);
  });
}

TEST_CASE("zero3_qwz gathers weights that are wrong by at most half a scale, equally on all ranks",
          "[stages]") {
  const int ranks = GENERATE(1, 3, 4);
  const Gathered g =
      gather(StageKind("zero3_qwz"), ranks, [](int64_t i) { return float(odd_value(0, 0, i)); });
  CHECK(g.equal_on_all_ranks);
  double most = 0;
  for (size_t u = 0; u < g.exact.size(); ++u)
    for (size_t i = 0; i < g.exact[u].size(); ++i) {
      const double half = largest_of_group(g.exact[u], i, ranks) / 127 / 2,
                   wrong = std::abs(double(g.gathered[u][i]) - double(g.exact[u][i]));
      if (wrong > 0) most = std::max(most, wrong / half);
    }
  CHECK(most <= 1 + 0x1p-15);
  CHECK(most > 0.9);  // the twin: with fewer bits it would be more
}

TEST_CASE("zero3_qwz trains as zero3 where 8 bits hold the weights, and otherwise not",
          "[stages]") {
  // 127 in every group makes the scale 1.
  const auto whole = [](int64_t i) { return float(i % 2 ? 127 : i % 127 - 60); };
  const Gathered g = gather(StageKind("zero3_qwz"), 4, whole);
  CHECK(g.exact == g.gathered);
  const StageRunSpec spec{.stage = StageKind::zero3, .ranks = 3, .steps = 2};
  StageRunSpec lossy = spec;
  lossy.stage = StageKind("zero3_qwz");
  const StageRun zero3 = run_stage(spec), qwz = run_stage(lossy);
  CHECK_FALSE(qwz.same_bits(zero3));
  CHECK(std::abs(qwz.losses[1] - zero3.losses[1]) < 0.05 * zero3.losses[1]);
}

TEST_CASE("what a checkpoint or an export of zero3_qwz reads has all bits of the shards",
          "[stages]") {
  StageRunSpec spec{.stage = StageKind::zero3, .ranks = 3, .steps = 1};
  spec.lr = 0;
  const StageRun zero3 = run_stage(spec);
  spec.stage = StageKind("zero3_qwz");
  const StageRun qwz = run_stage(spec);
  CHECK(qwz.master == zero3.master);          // visit_weights
  CHECK_FALSE(qwz.weights == zero3.weights);  // the twin: what is gathered
}

TEST_CASE("zero3_qgz is wrong by at most half a scale per rank and per node, element by element",
          "[stages]") {
  struct Case {
    int ranks, ranks_per_node;
  };
  const Case c = GENERATE(Case{4, 2}, Case{6, 2}, Case{6, 3}, Case{3, 1}, Case{3, 3});
  const int micro_batches = GENERATE(1, 2);
  CAPTURE(c.ranks, c.ranks_per_node, micro_batches);
  GradientSums sums{.stage = StageKind("zero3_qgz"),
                    .ranks = c.ranks,
                    .micro_batches = micro_batches,
                    .gradient = odd_value};
  sums.options.ranks_per_node = c.ranks_per_node;
  const auto quantized = reduced(sums);
  sums.options.ranks_per_node = 0;
  sums.stage = StageKind::zero3;
  const auto exact = reduced(sums);
  double most = 0;
  for (size_t u = 0; u < exact.size(); ++u) {
    const size_t n = exact[u].size();
    std::vector<double> bound(n);
    for (int a = 0; a < micro_batches; ++a)
      for (int first = 0; first < c.ranks; first += c.ranks_per_node) {
        std::vector<float> node(n);  // at most: the sum of magnitudes and of half a scale of each
        for (int r = first; r < first + c.ranks_per_node; ++r) {
          std::vector<float> of_rank(n);
          for (size_t i = 0; i < n; ++i) of_rank[i] = float(odd_value(r, a, int64_t(i)));
          for (size_t i = 0; i < n; ++i) {
            const double half = largest_of_group(of_rank, i, c.ranks) / 7 / 2;
            bound[i] += half;
            node[i] += std::abs(of_rank[i]) + float(half);
          }
        }
        for (size_t i = 0; i < n; ++i) bound[i] += largest_of_group(node, i, c.ranks) / 7 / 2;
      }
    for (size_t i = 0; i < n; ++i) {
      const double wrong = std::abs(double(quantized[u][i]) - double(exact[u][i]));
      most = std::max(most, wrong * c.ranks / (bound[i] + 1e-5));
    }
  }
  CHECK(most <= 1);
  CHECK(most > 0.2);  // the twin
}

TEST_CASE("zero3_qgz has the bits of zero3 on values that 4 bits hold at both levels", "[stages]") {
  // One rank of a node has a 7 and the other a 0 in every pair, so that sums are within 4 bits too.
  const auto held = [](int rank, int, int64_t element) {
    const int64_t k = element % 2 == 0 ? 7 : (element * 5) % 15 - 7;
    return rank % 2 == 0 ? 0.25 * double(k) : 0.0;
  };
  GradientSums sums{.stage = StageKind::zero3, .ranks = 4, .gradient = held};
  const auto exact = reduced(sums);
  sums.stage = StageKind("zero3_qgz");
  CHECK(reduced(sums) == exact);
  sums.gradient = odd_value;  // the twin
  CHECK(reduced(sums) != exact);
}

TEST_CASE("a gradient that is not finite stays so in 4 bits: the step is skipped and named",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind("zero3_qgz"), StageKind("hsdp"),
                                   StageKind("zero3_hpz"), StageKind("zero3_qwz"));
  CAPTURE(name(stage));
  StageRunSpec spec{.stage = stage, .ranks = 4, .steps = 2};
  spec.at_start = [](Stage&, OddModel& model, Communicator& comm, Memory&) {
    if (comm.rank() == 2) model.spoiled = "block0.up";
  };
  spec.after_step = [](Stage&, OddModel& model, Communicator&, Memory&) { model.spoiled = ""; };
  const StageRun run = run_stage(spec);
  REQUIRE(run.skipped.size() == 2);
  CHECK(run.skipped[0]);
  CHECK_FALSE(run.skipped[1]);  // the twin
  REQUIRE(run.nonfinite[0]);
  CHECK(run.nonfinite[0]->rank == 2);
  CHECK(run.nonfinite[0]->parameter == "block0.up");
}
