// A run of zero3 whose ranks record what a timeline is made of.
#pragma once

#include <string>
#include <vector>

#include "dist/trace/chrome_trace.h"
#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"

namespace zl::test {

struct Traced {
  std::vector<RankTrace> ranks;
  std::vector<MemoryLedger> device;  // by rank, when recording ended
  std::vector<int64_t> sent;         // [B] by rank, as the log has it
};

struct TracedRun {
  bool lane = false;
  int64_t capacity = 100'000;
};

inline Traced traced(int ranks, const TracedRun& how = {}) {
  static const Windows windows(TokenData::of_text("text", std::string(4000, 'a') + "b"), 9);
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.steps = 2;
  spec.engine.stage = StageKind::zero3;
  spec.ranks = ranks;
  if (how.lane) spec.rank_options.lane = own_lane();
  spec.data = &windows;
  const auto n = size_t(ranks);
  Traced all{std::vector<RankTrace>(n), std::vector<MemoryLedger>(n), std::vector<int64_t>(n)};
  std::vector<TraceRecorder> recorders(n, TraceRecorder(how.capacity));
  const auto begin = [&](Trainer& t) {
    TraceRecorder& own = recorders[size_t(t.comm().rank())];
    own.begin(t.memory().ledger(), t.host().ledger());
    t.comm().events().listen([&own](const Event& e) { own.see(e); });
  };
  const auto end = [&](Trainer& t) {
    const auto rank = size_t(t.comm().rank());
    recorders[rank].stop();
    all.ranks[rank] = recorders[rank].trace();
    all.device[rank] = t.memory().ledger();
    for (const auto& [key, traffic] : t.comm().log().rows())
      all.sent[rank] += traffic.sent_bytes_times_n / t.comm().size();
  };
  run_training(spec, {.at_start = begin, .at_end = end});
  return all;
}

}  // namespace zl::test
