// Overlap, prefetch and reuse: the same bits, calls and bytes as without, and a bounded number of
// communications in flight.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "stages/train/weights.h"
#include "tensor/random.h"
#include "tests/pairwise.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// One value of each option, by its index in the list of that option.
struct Combination {
  enum { stage, overlap, bucket, prefetch, live, reuse, offload, precision, ranks, model, options };
  std::array<int, options> choice{};

  static constexpr std::array<int, options> choices = {4, 2, 4, 4, 4, 4, 2, 3, 5, 4};

  template <class T>
  T pick(int option, std::initializer_list<T> values) const {
    return values.begin()[choice[size_t(option)]];
  }
  std::string text() const {
    std::string all;
    for (const int c : choice) all += str(c, " ");
    return all;
  }

  // Whether every unit runs once, in the order of the list: then the closed formulas apply.
  bool in_order() const { return choice[model] != 1; }

  // What all combinations with these three parts share must have the same bits.
  StageRunSpec plain() const {
    StageRunSpec spec{.stage = kStages[size_t(choice[stage])],
                      .ranks = choice[ranks] + 1,
                      .micro_batches = 2,
                      .steps = 3};
    spec.options.precision = pick(precision, {Dtype::f32, Dtype::bf16, Dtype::f16});
    spec.scale = spec.options.precision == Dtype::f16 ? 256 : 1;
    spec.model = pick<OddModelOptions>(
        model, {{.blocks = 4},
                {.blocks = 3, .block_twice = true, .unused_parameter = true, .unused_unit = true},
                {.blocks = 3, .recompute = Recompute::full},
                {.blocks = 1, .tied = false, .recompute = Recompute::selective}});
    return spec;
  }
  StageRunSpec overlapped() const {
    constexpr int64_t huge = 1'000'000'000;
    StageRunSpec spec = plain();
    spec.offload = choice[offload] != 0;
    const int64_t size = pick<int64_t>(bucket, {1, 300, 600, huge});
    spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = size;
    spec.options.overlap = {.overlap_comm = choice[overlap] != 0,
                            .prefetch_bucket_size = pick<int64_t>(prefetch, {0, 1, 400, huge}),
                            .max_live_parameters = pick<int64_t>(live, {huge, 900, 500, 0}),
                            .max_reuse_distance = pick<int64_t>(reuse, {0, 1, 700, huge})};
    return spec;
  }
};

// Compares with runs without overlap, each of which is made once.
class Baselines {
 public:
  void check(const Combination& c) {
    const std::array<int, 4> key{c.choice[Combination::stage], c.choice[Combination::precision],
                                 c.choice[Combination::ranks], c.choice[Combination::model]};
    if (!runs_.contains(key)) runs_[key] = run_stage(c.plain());
    const StageRun run = run_stage(c.overlapped());
    CAPTURE(c.text());
    CHECK(run.same_bits(runs_[key]));
    if (c.in_order()) CHECK(off_the_prediction(c.overlapped(), run) == "");
    for (const int64_t live : run.live_at_end) CHECK(live == 0);
  }

 private:
  std::map<std::array<int, 4>, StageRun> runs_;
};

}  // namespace

// ZEROLAB_NIGHTLY=1 adds 500 random combinations.
TEST_CASE("combinations of the options of overlap that hold all pairs of values keep the bits",
          "[stages][seeds]") {
  Baselines baselines;
  const PhiloxStream random{18, 2};
  uint64_t next = 0;
  const auto& choices = Combination::choices;
  Combination c;
  for (const SettingsRow& row : pairwise({choices.begin(), choices.end()})) {
    std::ranges::copy(row.chosen(), c.choice.begin());
    baselines.check(c);
  }
  for (int k = 0; k < 500 && std::getenv("ZEROLAB_NIGHTLY"); ++k) {
    for (size_t i = 0; i < c.choice.size(); ++i)
      c.choice[i] = int(random.uniform(next++) * choices[i]);
    baselines.check(c);
  }
}

namespace {

// What one rank had in flight at most, by its events: calls by their purpose.
class InFlight {
 public:
  explicit InFlight(EventStream& events) {
    events.listen([this](const Event& e) { see(e); });
  }
  int reductions = 0, gathers = 0;  // the most at one time
  std::vector<std::string> calls;   // in order: "issue h.0 gradient", "wait h.0 gradient"

 private:
  void see(const Event& e) {
    const std::string_view name = e.detail;
    const bool gradient = name.ends_with(" gradient"), parameter = name.ends_with(" parameter");
    if (!gradient && !parameter) return;
    int& now = gradient ? reductions_now_ : gathers_now_;
    if (e.kind == EventKind::collective_begin) {
      ++now;
      calls.push_back(str("issue ", name));
    } else if (e.kind == EventKind::collective_wait) {
      calls.push_back(str("wait ", name));
    } else if (e.kind == EventKind::collective_end) {
      --now;
    }
    reductions = std::max(reductions, reductions_now_);
    gathers = std::max(gathers, gathers_now_);
  }
  int reductions_now_ = 0, gathers_now_ = 0;
};

// The run, and what rank 1 had in flight. Lanes make calls asynchronous.
struct Watched {
  StageRun run;
  int reductions = 0, gathers = 0;
  std::vector<std::string> calls;  // of the first step
};
Watched watch(StageRunSpec spec) {
  Watched watched;
  std::unique_ptr<InFlight> seen;
  spec.rank_options.lane = own_lane();
  spec.at_start = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() == 1) seen = std::make_unique<InFlight>(comm.events());
  };
  spec.after_step = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() == 1 && watched.calls.empty()) watched.calls = seen->calls;
  };
  watched.run = run_stage(spec);
  watched.reductions = seen->reductions;
  watched.gathers = seen->gathers;
  return watched;
}

StageRunSpec four_blocks(StageKind stage, const Overlap& overlap) {
  StageRunSpec spec{.stage = stage, .ranks = 2, .micro_batches = 2, .model = {.blocks = 4}};
  spec.options.overlap = overlap;
  return spec;
}

}  // namespace

TEST_CASE("one reduction and the stated number of all-gathers are in flight", "[stages]") {
  const int prefetched = GENERATE(0, 1, 3);
  OddModel model({.blocks = 4});
  int64_t size = prefetched > 0 ? 1 : 0;  // of the last two blocks, which are the largest, and 1
  for (int b = 0; b + 1 < prefetched; ++b)
    size += Partition(model.units()[size_t(4 - b)], 2).full();
  for (const StageKind stage : kStages) {
    const Watched w =
        watch(four_blocks(stage, {.overlap_comm = true, .prefetch_bucket_size = size}));
    CAPTURE(name(stage), prefetched);
    CHECK(w.reductions == 1);
    if (stage == StageKind::zero3) CHECK(w.gathers == std::max(1, prefetched));
    if (stage == StageKind::zero1 || stage == StageKind::zero2) CHECK(w.gathers == 5);  // all
  }
}

TEST_CASE("overlap and prefetch change no call and no byte; reuse leaves all-gathers out",
          "[stages]") {
  const StageKind stage = any_stage();
  const auto rows = [&](const Overlap& overlap) {
    return run_stage(four_blocks(stage, overlap)).logs[0].rows();
  };
  const auto plain = rows({});
  CHECK(rows({.overlap_comm = true, .prefetch_bucket_size = 500}) == plain);
  CHECK((rows({.max_reuse_distance = 1}) == plain) == (stage != StageKind::zero3));
}

TEST_CASE("where calls are issued and waited for, event by event", "[stages]") {
  using Calls = std::vector<std::string>;
  const auto calls = [](StageKind stage) {
    StageRunSpec spec{.stage = stage, .ranks = 2, .model = {.blocks = 2}};
    spec.options.overlap = {
        .overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
    return watch(spec).calls;
  };
  const Calls reductions = {
      "issue block1 gradient",                           // after its backward
      "wait block1 gradient",  "issue block0 gradient",  // after that of block0
      "wait block0 gradient",  "issue root gradient",    // at the end of backward
      "wait root gradient"};
  const Calls updates = {"issue root parameter", "issue block0 parameter",
                         "issue block1 parameter"};  // waited for in the next step
  Calls sharded = reductions;
  sharded.insert(sharded.end(), updates.begin(), updates.end());
  CHECK(calls(StageKind::ddp) == reductions);
  CHECK(calls(StageKind::zero1) == sharded);
  CHECK(calls(StageKind::zero2) == sharded);
  CHECK(calls(StageKind::zero3) ==
        Calls{"issue root parameter", "wait root parameter",
              "issue block0 parameter",                           // while root embeds
              "wait block0 parameter", "issue block1 parameter",  // while block0 computes
              "wait block1 parameter",                            // stays for backward
              "issue block0 parameter",                           // while block1 goes back
              "issue block1 gradient", "wait block0 parameter",   //
              "wait block1 gradient", "issue block0 gradient",    //
              "wait block0 gradient", "issue root gradient", "wait root gradient"});
}

TEST_CASE("other data and other options of the update are noticed under overlap", "[stages]") {
  Combination c;
  c.choice = {3, 1, 1, 2, 0, 2, 0, 0, 2, 0};
  StageRunSpec spec = c.overlapped();
  const StageRun run = run_stage(spec);
  spec.data_seed = 8;
  CHECK_FALSE(run_stage(spec).same_bits(run));
  spec = c.overlapped();
  spec.max_norm = 0.01;
  CHECK_FALSE(run_stage(spec).same_bits(run));
}

TEST_CASE("weights that are loaded while an update is being gathered stay loaded", "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2);
  CAPTURE(name(stage));
  const auto run = [stage](const Overlap& overlap, bool loads) {
    StageRunSpec spec = four_blocks(stage, overlap);
    spec.steps = 2;
    spec.at_start = [overlap](Stage&, OddModel&, Communicator& comm, Memory&) {
      if (!overlap.overlap_comm || comm.rank() != 1) return;
      // This rank is late with its part of each all-gather.
      comm.events().listen([](const Event& e) {
        if (e.kind == EventKind::unit && std::string_view(e.what) == "update")
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
      });
    };
    spec.after_step = [loads](Stage& stage, OddModel&, Communicator&, Memory&) {
      if (!loads) return;
      load_weights(stage, [](const Parameter& p) {
        std::vector<float> values(size_t(p.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * float(i % 17) - 0.05f;
        return values;
      });
    };
    return run_stage(spec);
  };
  const StageRun plain = run({}, true), overlapped = run({.overlap_comm = true}, true);
  CHECK(overlapped.same_bits(plain));
  CHECK_FALSE(run({}, false).same_bits(overlapped));  // the twin
}
