// Fragmentation of the events of dry runs, and of the same events of real runs.
#include "stages/residual/fragmentation.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <sstream>

#include "stages/predict/dry_run.h"
#include "tests/stages/checkpoint/checkpoint_run.h"
#include "tutorials/zerolab/cli/number_text.h"

using namespace zl;
using namespace zl::test;

namespace {

GptTrainingSpec spec_of(const char* model, StageKind stage, Recompute recompute, int ranks = 3) {
  GptTrainingSpec spec = gpt_spec(named_gpt(model), 0, recompute);
  spec.ranks = ranks;
  spec.engine.stage = stage;
  return spec;
}

std::vector<int64_t> sizes(const std::vector<ChunkEvent>& events) {
  std::vector<int64_t> all;
  for (const ChunkEvent& e : events)
    all.push_back(e.event.allocates ? e.event.bytes : -e.event.bytes);
  return all;
}

}  // namespace

TEST_CASE("an arena is never smaller than the ledger's peak, and chunks have no holes",
          "[stages]") {
  bool overhead = false;
  for (const char* model : {"tiny", "small", "gpt2"})
    for (const StageKind stage : kStages)
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        CAPTURE(model, name(stage), name(recompute));
        const GptTrainingSpec spec = spec_of(model, stage, recompute);
        const std::vector<ChunkEvent> events = block_events(spec, 0);
        const RankReport ledger = dry_run(spec, 0);
        for (const Fit fit : {Fit::first, Fit::best}) {
          const Fragmentation f = fragmentation(events, fit);
          CHECK(f.together.peak_live == std::max(ledger.init_peak_total, ledger.rest.peak_total()));
          CHECK(f.together.high_water >= f.together.peak_live);
          CHECK(f.kept.high_water == f.kept.peak_live);
          CHECK(f.gradient.high_water == f.gradient.peak_live);
          CHECK(f.gradient.peak_live == ledger.rest.peak(MemoryUse::gradient));
          CHECK(f.kept.peak_live > 0);
          CHECK(f.kept.peak_live <= ledger.rest.peak(MemoryUse::activation));
          CHECK(f.rest.high_water >= f.rest.peak_live);
          overhead = overhead || f.together.high_water > f.together.peak_live;
        }
      }
  CHECK(overhead);  // the twin of the equalities
}

TEST_CASE("with full recomputation each block adds its input to the chunk, B T C elements",
          "[stages]") {
  constexpr int64_t kInput = 4 * 32 * 24 * 4;  // [B] B 4, T 32, C 24 in fp32
  const auto kept = [](int64_t layers, Recompute recompute) {
    GptTrainingSpec spec = gpt_spec(
        {.layers = layers, .heads = 2, .width = 24, .block_size = 32, .vocab = 256}, 0, recompute);
    spec.ranks = 3;
    spec.engine.stage = StageKind::zero2;
    return fragmentation(block_events(spec, 0), Fit::first).kept.peak_live;
  };
  const auto of_block = [&](Recompute recompute) {
    return kept(5, recompute) - kept(4, recompute);
  };
  CHECK(of_block(Recompute::full) == kInput);
  // nn/gpt.h: a block keeps 16 (B, T, C), of which 6 are recomputed selectively. Statistics of
  // norms and attention come on top, less than one more.
  CHECK(of_block(Recompute::none) - of_block(Recompute::selective) == 6 * kInput);
  CHECK(of_block(Recompute::selective) / kInput == 10);
}

TEST_CASE("a real run of two ranks has the events of the dry run", "[stages]") {
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    GptTrainingSpec spec = spec_of("tiny", stage, Recompute::selective, 2);
    const std::vector<ChunkEvent> dry = block_events(spec, 0);
    const Windows windows = text_in_windows(spec.window);
    spec.data = &windows;
    spec.steps = 3;
    BlockRecorder recorder;
    // The stage is the first that allocates; until then there is nothing to see.
    spec.make_stage = [&](StageKind kind, std::vector<Unit>& units, Communicator& comm,
                          Memory& memory, const StageOptions& options) {
      if (comm.rank() == 0) memory.events().listen([&](const Event& e) { recorder.see(e); });
      return make_stage(kind, units, comm, memory, options);
    };
    run_training(spec);
    const std::vector<ChunkEvent> real = recorder.events();
    REQUIRE(real.size() >= dry.size());
    CHECK(sizes(real) == sizes(dry));
    for (const Fit fit : {Fit::first, Fit::best}) {
      const Fragmentation a = fragmentation(real, fit), b = fragmentation(dry, fit);
      CHECK((a.together == b.together && a.kept == b.kept));
      CHECK((a.gradient == b.gradient && a.rest == b.rest));
    }
    // Twin: without its last allocation before a peak, or with a larger one, the result differs.
    auto other = dry;
    for (ChunkEvent& e : other) e.event.bytes += 64;
    CHECK_FALSE(fragmentation(other, Fit::first).together ==
                fragmentation(dry, Fit::first).together);
  }
}

// The numbers of the table were checked with a simulation in another language that keeps a list of
// live intervals.
TEST_CASE("the page about ZeRO-R has the fragmentation of each model and stage", "[stages]") {
  std::ifstream file(ZEROLAB_SOURCE_DIR "/tutorials/reference/zero_r.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const char* model : {"small", "gpt2"})
    for (const StageKind stage : kStages)
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        GptTrainingSpec spec = spec_of(model, stage, recompute, 4);
        spec.device = DeviceKind::cuda;
        const std::vector<ChunkEvent> events = block_events(spec, 0);
        const Fragmentation f = fragmentation(events, Fit::first);
        CHECK(f.together == fragmentation(events, Fit::best).together);
        CHECK(f.apart() > f.together.high_water);
        std::string row = str("| ", model, " | ", name(stage), " | ", name(recompute));
        for (const std::string& cell :
             {cli::with_commas(f.together.peak_live), cli::with_commas(f.together.high_water),
              cli::format("%.2f %%", 100 * f.together.overhead()),
              cli::with_commas(f.kept.high_water), cli::with_commas(f.gradient.high_water),
              cli::with_commas(f.rest.high_water)})
          row += " | " + cell;
        INFO("a line of zero_r.md should be:\n" << row << " |");
        CHECK(page.str().find(row + " |\n") != std::string::npos);
      }
  CHECK(page.str().find("| gpt2 | zero2 | none |") == std::string::npos);  // find() finds no others
}
