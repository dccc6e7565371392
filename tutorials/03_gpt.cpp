// What does one training step cost in bytes? A GPT under ddp: its model states by unit, and its
// activations at each event of the step.
#include <cmath>
#include <map>

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

// The same batch for all ranks and steps, so that the model memorises it.
struct OneBatch final : BatchSource {
  Shape input_row() const override { return text_m().input_row(); }
  Shape target_row() const override { return text_m().target_row(); }
  void fill_rows(int64_t, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    text_m().fill_rows(0, ids, targets);
  }
};

// Listens to the events of a rank: bytes allocated for each unit, and bytes of activations at each
// event of a step.
struct Listener {
  std::map<std::string, std::map<std::string, int64_t>> states;  // [B] by unit and use
  std::vector<std::pair<std::string, int64_t>> timeline;         // "after forward of h.0", [B]
  int64_t live = 0;                                              // [B] of activations
  void operator()(const Event& e) {
    std::string what = e.what;
    const int64_t bytes = e.kind == EventKind::allocate  ? e.bytes
                          : e.kind == EventKind::release ? -e.bytes
                                                         : 0;
    if (e.phase == std::string("initialize")) states[e.unit][what] += bytes;
    if (what == name(MemoryUse::activation)) live += bytes;
    if (e.kind != EventKind::unit || what.find("ward") == what.npos) return;
    timeline.emplace_back(what.replace(what.find('_'), 1, " ") + " of " + e.unit, live);
  }
};
std::string column(std::string text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// What one step allocated, beside formulas that know only the sizes.
void report(Lesson& lesson, const TrainingSpec& spec, Listener& seen, const MemoryLedger& ledger) {
  const int64_t L = lesson.count("--layers");
  const SizesM sizes = sizes_m(spec.ranks, L);
  const GptConfig m = model_m(L);
  const int64_t C = m.width, BT = spec.micro_batch * m.block_size;
  lesson.say(
      "model states in fp32, by unit: elements, and bytes of parameter, gradient and "
      "optimizer_state");
  int64_t right = 0;
  for (Gpt model(m); const Unit& u : model.units()) {
    auto& bytes = seen.states[u.name];
    const int64_t n = u.index == 0 ? sizes.padded_root : sizes.padded_block;
    std::string line = column(u.name, 8) + column(with_commas(n), 10);
    for (const char* use : {"parameter", "gradient", "optimizer_state"})
      line += column(with_commas(bytes[use]), 11);
    lesson.say(line);
    right += bytes["parameter"] == 4 * n && bytes["gradient"] == 4 * n &&
             bytes["optimizer_state"] == 8 * n;
  }
  lesson.number("units", right, L + 1,
                "units of 4, 4 and 8 B per element: root (V+T+2) C, blocks 12 C^2 + 13 C, padded");
  const int64_t full = seen.timeline[size_t(2 * L + 1)].second,
                block = 4 * BT * (10 * C + 4 + m.heads);
  lesson.say("bytes of activations");
  for (const auto& [when, bytes] : seen.timeline)
    lesson.say("  " + when + column(with_commas(bytes), 36 - when.size()) + " |" +
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
  const OneBatch batch;
  TrainingSpec spec = training_m(lesson, StageKind::ddp, L);
  spec.data = &batch, spec.micro_batch = lesson.count("--batch"), spec.engine.optimizer.lr = 0.01;
  Listener rank0;
  TrainingSpec listened = spec;
  listen_to_rank0(lesson, listened, std::ref(rank0));
  const MemoryLedger ledger = train_m(lesson, listened, true).ranks[0].rest;
  report(lesson, spec, rank0, ledger);

  const int64_t all = spec.ranks * sizes_m(spec.ranks, L).padded();
  lesson.say(str("model states in each mode on N = ", spec.ranks, " ranks of ",
                 with_commas(all / spec.ranks), " padded elements"));
  std::vector<StepRecord> steps;
  for (const auto& mode : kModes) {
    spec.engine.precision = mode.precision, spec.engine.grad_accum_dtype = mode.gradients;
    spec.engine.optimizer.separate_master = mode.separate_master;
    spec.steps = &mode == kModes ? 150 : 1;
    RunM run = train_m(lesson, spec);
    int64_t states = 0;
    for (const RankReport& rank : run.ranks) states += rank.rest.live_total();
    lesson.number(mode.key, states, mode.bytes * all, mode.formula);
    if (&mode == kModes) steps = std::move(run.steps);
  }
  lesson.number("first_loss", std::round(steps[0].loss * 1000) / 1000, std::log(model_m().vocab),
                0.15, "ln V, within 0.15");
  lesson.say(str("~ after 150 steps the loss is ", steps.back().loss));
  lesson.check("the model has memorised the batch: the loss is below 0.1", steps.back().loss < 0.1);
}

int main(int argc, char** argv) {
  const Flag layers{"--layers", "L", "blocks of the model", 2, 1, 4},
      batch{"--batch", "B", "sequences in the batch", 4, 1, 4};
  return run(argc, argv,
             {"03_gpt", "What does one training step cost in bytes?", 1, 4, {layers, batch}}, body);
}
