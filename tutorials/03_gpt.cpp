// What does one training step cost in bytes? A GPT under ddp: its activations at each event of the
// step, and its model states in each mode.
#include "stages/predict/dry_run.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

struct Mode {
  const char *key, *formula;
  int64_t bytes;  // per parameter, that stay between steps
  Dtype precision;
  bool separate_master;
  std::optional<Dtype> gradients;
};
const Mode kModes[] = {
    {"fp32", "N x 16 B: 4 parameter, 4 gradient, 8 moments", 16, Dtype::f32, false, {}},
    {"fp32_master", "N x 20 B: 4, 4, 8, and 4 for a master copy", 20, Dtype::f32, true, {}},
    {"bf16", "N x 16 B: 2, 2, 8, and 4 for the fp32 master copy", 16, Dtype::bf16, false, {}},
    {"bf16_fp32_gradient", "N x 18 B: 2, 4, 8, 4: gradients accumulate in fp32", 18, Dtype::bf16,
     false, Dtype::f32}};

// Listens to the events of a rank: bytes of activations at each event of a step.
struct Listener {
  std::vector<std::pair<std::string, int64_t>> timeline;  // "after forward of h.0", [B]
  int64_t live = 0;
  void operator()(const Event& e) {
    std::string what = e.what;
    if (what == name(MemoryUse::activation))
      live += e.kind == EventKind::allocate ? e.bytes : e.kind == EventKind::release ? -e.bytes : 0;
    if (e.kind != EventKind::unit || what.find("ward") == what.npos) return;
    timeline.emplace_back(what.replace(what.find('_'), 1, " ") + " of " + e.unit, live);
  }
};

// Bytes of activations in one step, beside formulas that know only the sizes.
void activations(Lesson& lesson, const TrainingSpec& spec, Listener& seen,
                 const MemoryLedger& ledger) {
  const int64_t L = lesson.count("--layers");
  const GptConfig m = model_m(L);
  const int64_t C = m.width, BT = spec.micro_batch * m.block_size;
  const int64_t full = seen.timeline[size_t(2 * L + 1)].second,
                block = 4 * BT * (10 * C + 4 + m.heads);
  lesson.say("bytes of activations");
  for (const auto& [when, bytes] : seen.timeline)
    lesson.say(cli::format("  %-25s%11s |", when.c_str(), with_commas(bytes).c_str()) +
               std::string(size_t(40 * bytes / full), '#'));
  lesson.number("block_keeps", seen.timeline[2].second - seen.timeline[1].second, block,
                "4 B x BT (10 C + 4 + H)");
  lesson.number("after_forward", full, L * block + 4 * (BT * (4 + C + m.vocab) + 1),
                "L blocks, and 4 B x (BT (4 + C + V) + 1) outside them");
  lesson.number("peak", ledger.peak(MemoryUse::activation), L * block + 4 * (BT * (2 + 5 * C) + 1),
                "L blocks, 4 B x (BT (2 + 5 C) + 1): gradients C and 4 C of the last block");
  lesson.number("dry_run", dry_run(spec, 0).rest.peak(MemoryUse::activation),
                ledger.peak(MemoryUse::activation),
                "the same step on the meta backend, which has no data");
}

void body(Lesson& lesson) {
  const int64_t L = lesson.count("--layers");
  TrainingSpec spec = training_m(lesson, StageKind::ddp, L);
  spec.micro_batch = lesson.count("--batch");
  Listener rank0;
  const MemoryLedger ledger = train_m(lesson, spec, true, {}, std::ref(rank0)).ranks[0].rest;
  activations(lesson, spec, rank0, ledger);

  const int64_t all = spec.ranks * sizes_m(spec.ranks, L).padded();
  lesson.say(str("model states in each mode on N = ", spec.ranks, " ranks of ",
                 with_commas(all / spec.ranks), " padded elements"));
  for (const auto& mode : kModes) {
    spec.engine.precision = mode.precision, spec.engine.grad_accum_dtype = mode.gradients;
    spec.engine.optimizer.separate_master = mode.separate_master;
    const RunM run = train_m(lesson, spec);
    int64_t states = 0;
    for (const RankReport& rank : run.ranks) states += rank.rest.live_total();
    lesson.number(mode.key, states, mode.bytes * all, mode.formula);
  }
}

int main(int argc, char** argv) {
  const Flag layers{"--layers", "L", "blocks of the model", 2, 1, 4},
      batch{"--batch", "B", "sequences in the batch", 4, 1, 4};
  return run(argc, argv,
             {"03_gpt", "What does one training step cost in bytes?", 1, 4, {layers, batch}}, body);
}
