// What does backward keep, and what of it can a rank leave out? Activation checkpointing, with
// inputs on the device or on the host.
#include <algorithm>

#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

// The letters of the formulas, and [B] of L blocks and what is outside them, each per token.
struct Letters {
  int64_t L, C, H, V, BT;
  int64_t bytes(int64_t block, int64_t outside) const {
    return 4 * (BT * (L * block + outside) + 1);
  }
};
Letters letters(const Lesson& lesson) {
  const GptConfig m = model_m();
  return {lesson.count("--layers"), m.width, m.heads, m.vocab, kRowsM * m.block_size};
}

struct Way {
  Recompute recompute;
  bool on_host = false;
};
// What one step of rank 0 did.
struct Seen {
  int64_t waiting = 0, matmul = 0;  // [B], [n] operations
  RunM run = {};
  int64_t peak() const { return run.ranks[0].rest.peak(MemoryUse::activation); }
};

TrainingSpec spec_of(Lesson& lesson, const Way& way) {
  const int64_t L = lesson.count("--layers");
  TrainingSpec spec = training_m(lesson, StageKind::zero2, L);
  spec.make_model = [L, way] { return std::make_unique<Gpt>(model_m(L), way.recompute); };
  spec.engine.cpu_checkpointing = way.on_host;
  return spec;
}

Seen step_of(Lesson& lesson, const Way& way, bool recorded = false) {
  Seen seen;
  int64_t live = 0;  // [B] of activations on the device
  const auto listener = [&](const Event& e) {
    const std::string what = e.what, detail = e.detail;
    if (e.kind == EventKind::kernel && what == "matmul") seen.matmul += e.count;
    if (e.kind == EventKind::phase && what == "backward") seen.waiting = live;
    if (what != name(MemoryUse::activation) || detail != name(Pool::device)) return;
    live += e.kind == EventKind::allocate ? e.bytes : e.kind == EventKind::release ? -e.bytes : 0;
  };
  seen.run = train_m(lesson, spec_of(lesson, way), recorded, {}, listener);
  return seen;
}

void what_is_kept(Lesson& lesson, const std::vector<Seen>& seen) {
  const Letters m = letters(lesson);
  const auto [L, C, H, V, BT] = m;
  lesson.say("what waits when backward begins: of each block, and outside them");
  lesson.number("none", seen[0].waiting, m.bytes(16 * C + 4 + H, 4 + 2 * C + V),
                "4 B x (BT (L (16 C + 4 + H) + 4 + 2 C + V) + 1)");
  lesson.number("selective", seen[1].waiting, m.bytes(10 * C + 4 + H, 4 + C + V),
                "4 B x (BT (L (10 C + 4 + H) + 4 + C + V) + 1)");
  lesson.number("full", seen[2].waiting, m.bytes(C, 4 + 2 * C + V),
                "4 B x (BT (L C + 4 + 2 C + V) + 1): of a block only its input");
  lesson.say("the most at one time, and what full costs");
  lesson.number("none_peak", seen[0].peak(),
                m.bytes(16 * C + 4 + H, std::max(4 + 3 * C + V, 2 + 5 * C)),
                "4 B x (BT (L (16 C + 4 + H) + max(4 + 3 C + V, 2 + 5 C)) + 1)");
  lesson.number("selective_peak", seen[1].peak(), m.bytes(10 * C + 4 + H, 2 + 5 * C),
                "4 B x (BT (L (10 C + 4 + H) + 2 + 5 C) + 1)");
  lesson.number("full_peak", seen[2].peak(), m.bytes(C, 15 * C + 4 + H + 2 + 6 * C),
                "4 B x (BT (L C + 15 C + 4 + H + 2 + 6 C) + 1): one block at work");
  lesson.number("operations_again", seen[2].matmul - seen[0].matmul, L * 2 * BT * 12 * C * C,
                "L x 2 BT x 12 C^2: matmuls of a second forward of each block");
}

void where_inputs_wait(Lesson& lesson, const std::vector<Seen>& seen) {
  const Letters m = letters(lesson);
  const int64_t bytes = 4 * m.L * m.BT * m.C;
  const RankReport& host = seen[3].run.ranks[0];
  const auto loss = [](const Seen& way) { return way.run.steps[0].loss; };
  lesson.say("\nfull, where the L inputs of BT C elements each wait on the host");
  lesson.number("host_peak", seen[3].peak(), seen[2].peak() - bytes + bytes / m.L,
                "full_peak - 4 B x (L - 1) BT C: one input is back");
  lesson.number("host_bytes", host.host.peak(MemoryUse::activation), bytes,
                "4 B x L BT C in host memory");
  lesson.number("host_moved", host.moves.of(Move::device_to_host).bytes, bytes,
                "4 B x L BT C there, and as much back");
  lesson.check("all four ways have the same loss, bit for bit",
               std::ranges::count(seen, loss(seen[0]), loss) == std::ssize(seen));
}

int main(int argc, char** argv) {
  const About about{.name = "12_activations",
                    .question = "What does backward keep, and what of it can a rank leave out?",
                    .flags = {{"--layers", "L", "blocks of the model", 2, 1, 8}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    std::vector<Seen> seen;
    for (const Way& way :
         {Way{Recompute::none}, {Recompute::selective}, {Recompute::full}, {Recompute::full, true}})
      seen.push_back(step_of(lesson, way, seen.size() == 2));
    what_is_kept(lesson, seen);
    where_inputs_wait(lesson, seen);
  });
}
