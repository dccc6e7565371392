// Runs of lesson 12: one step of model M with each way to keep activations for backward.
#pragma once

#include "tutorials/lesson/model_m.h"

namespace zl::lesson {

// The letters of the formulas, and [B] of L blocks and what is outside them, each per token.
struct Letters {
  int64_t L, C, H, V, BT;
  int64_t bytes(int64_t block, int64_t outside) const {
    return 4 * (BT * (L * block + outside) + 1);
  }
};
inline Letters letters(const Lesson& lesson) {
  const GptConfig m = model_m();
  return {lesson.count("--layers"), m.width, m.heads, m.vocab, kRowsM * m.block_size};
}

// Rank 0's events, from its first one on.
inline void listen_to_rank0(Lesson& lesson, TrainingSpec& spec, EventStream::Listener listener) {
  spec.run_ranks = [&lesson, listener](int size, const auto& train, RankOptions options) {
    const auto rank = [&](Communicator& comm) {
      if (comm.rank() == 0) comm.events().listen(listener);
      train(comm);
    };
    lesson.run_ranks(size, rank, options);
  };
}

struct Way {
  Recompute recompute;
  bool on_host = false, partitioned = false;
};
// What one step of rank 0 did.
struct Seen {
  int64_t waiting = 0, matmul = 0, moved = 0, gathered = 0;  // [B], [n] operations, [B], [B]
  int64_t peak = 0, host_peak = 0;                           // [B] of activations
  double loss = 0;
};

inline TrainingSpec spec_of(Lesson& lesson, const Way& way) {
  const int64_t L = lesson.count("--layers");
  TrainingSpec spec = training_m(lesson, StageKind::zero2, L);
  spec.make_model = [L, way] { return std::make_unique<Gpt>(model_m(L), way.recompute); };
  spec.engine.replicated_micro_batches = true;  // the same sequences on every rank
  spec.engine.cpu_checkpointing = way.on_host;
  spec.engine.partition_activations = way.partitioned;
  return spec;
}

inline Seen step_of(Lesson& lesson, const Way& way, bool recorded = false) {
  TrainingSpec spec = spec_of(lesson, way);
  Seen seen;
  int64_t live = 0;  // [B] of activations on the device
  listen_to_rank0(lesson, spec, [&](const Event& e) {
    const std::string what = e.what, detail = e.detail;
    if (e.kind == EventKind::kernel && what == "matmul") seen.matmul += e.count;
    if (e.kind == EventKind::phase && what == "backward") seen.waiting = live;
    if (what != name(MemoryUse::activation) || detail != name(Pool::device)) return;
    live += e.kind == EventKind::allocate ? e.bytes : e.kind == EventKind::release ? -e.bytes : 0;
  });
  const RunM run = train_m(lesson, spec, recorded);
  const RankReport& rank0 = run.ranks[0];
  seen.loss = run.steps[0].loss;
  seen.moved = rank0.moves.of(Move::device_to_host).bytes;
  seen.gathered = sent_bytes(rank0.log, Collective::all_gather, Purpose::activation, spec.ranks);
  seen.peak = rank0.rest.peak(MemoryUse::activation);
  seen.host_peak = rank0.host.peak(MemoryUse::activation);
  return seen;
}

}  // namespace zl::lesson
