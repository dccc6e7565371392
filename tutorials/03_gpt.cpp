// What does one training step cost in bytes? A GPT under ddp: its states by unit, its activations
// as they come and go.
#include <atomic>
#include <cmath>
#include <map>

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
    {"bf16_fp32_gradient", "N x 18 B: 2, 4, 8, 4, as gradients are added in fp32", 18, Dtype::bf16,
     false, Dtype::f32}};
// One rank's model, and a batch: the same for all ranks, so that it is learnt by heart.
struct Run {
  Run(const TrainingSpec& spec, Communicator& comm)
      : memory({DeviceKind::cpu}, cpu_backend(), comm.events()), model(spec.model) {
    engine = initialize(model.units(), comm, memory, spec.config);
    ids = Tensor::empty(memory, MemoryUse::activation,
                        {spec.config.micro_batch, spec.model.block_size}, Dtype::i32);
    targets = like(ids, ids.shape());
    text_m().fill(0, ids.data<int32_t>(), targets.data<int32_t>());
  }
  double step() {
    Var loss = engine->forward(
        [&](Tape* tape, UnitObserver& stage) { return model.loss(tape, stage, ids, targets); });
    engine->backward(loss);
    engine->step();
    return engine->loss_of_step();
  }
  Memory memory;
  Gpt model;
  std::unique_ptr<Engine> engine;
  Tensor ids, targets;
};

// Hears what is allocated for which unit, and how much the activations hold at each event of a
// step.
struct Listener {
  std::map<std::string, std::map<std::string, int64_t>> states;  // [B] by unit and use
  std::vector<std::pair<std::string, int64_t>> timeline;         // "after forward of h.0", [B]
  int64_t live = 0, peak = 0;                                    // [B] of activations
  void operator()(const Event& e) {
    std::string what = e.what;
    const int64_t bytes = e.kind == EventKind::allocate  ? e.bytes
                          : e.kind == EventKind::release ? -e.bytes
                                                         : 0;
    if (e.phase == std::string("initialize")) states[e.unit][what] += bytes;
    if (what == name(MemoryUse::activation)) peak = std::max(peak, live += bytes);
    if (e.kind != EventKind::unit || what.find("ward") == what.npos) return;
    timeline.emplace_back(what.replace(what.find('_'), 1, " ") + " of " + e.unit, live);
  }
};
std::string column(std::string text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// What one step left in `heard`, beside formulas that know the sizes only.
void report(Lesson& lesson, const TrainingSpec& spec, Listener& heard) {
  const SizesM sizes = sizes_m(spec.ranks, spec.model.layers);
  const int64_t C = spec.model.width, L = spec.model.layers,
                BT = spec.config.micro_batch * spec.model.block_size;
  lesson.say(
      "what stays, in fp32, by unit: elements, and bytes of parameter, gradient and "
      "optimizer_state");
  int64_t right = 0;
  for (Gpt model(spec.model); const Unit& u : model.units()) {
    auto& bytes = heard.states[u.name];
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
  const int64_t full = heard.timeline[size_t(2 * L + 1)].second,
                block = 4 * BT * (16 * C + 4 + spec.model.heads);
  lesson.say("what comes and goes: bytes of activations");
  for (const auto& [when, bytes] : heard.timeline)
    lesson.say("  " + when + column(with_commas(bytes), 36 - when.size()) + " |" +
               std::string(size_t(40 * bytes / full), '#'));
  lesson.number("block_keeps", heard.timeline[2].second - heard.timeline[1].second, block,
                "4 B x BT (16 C + 4 + H)");
  const int64_t ends = 4 * (BT * (4 + 2 * C + spec.model.vocab) + 1);
  lesson.number("after_forward", full, L * block + ends,
                "L blocks, and 4 B x (BT (4 + 2 C + V) + 1) at both ends");
  lesson.number("peak", heard.peak, full + 4 * BT * C,
                "and the first gradient that walks back, 4 B x BT C");
  lesson.number("dry_run", dry_run(spec, 0).rest.peak(MemoryUse::activation), heard.peak,
                "a step without data");
}

void body(Lesson& lesson) {
  TrainingSpec spec = training_m(lesson, StageKind::ddp, lesson.count("--layers"));
  spec.config.micro_batch = lesson.count("--batch");
  spec.config.optimizer.lr = 0.01;
  std::vector<Listener> heard(static_cast<size_t>(spec.ranks));
  lesson.run_ranks(spec.ranks, [&](Communicator& comm) {
    comm.events().listen(std::ref(heard[size_t(comm.rank())]));
    Run run(spec, comm);
    lesson.watch(comm, run.memory, &run.engine->stage(), &run.model.units());
    run.step();
  });
  report(lesson, spec, heard[0]);
  const int64_t all = spec.ranks * sizes_m(spec.ranks, spec.model.layers).padded();
  lesson.say(str("what stays in each mode on N = ", spec.ranks, " ranks of ",
                 with_commas(all / spec.ranks), " padded elements"));
  std::vector<double> losses;
  for (const auto& mode : kModes) {
    spec.config.precision = mode.precision, spec.config.grad_accum_dtype = mode.gradients;
    spec.config.optimizer.separate_master = mode.separate_master;
    std::atomic<int64_t> states = 0;
    lesson.run_ranks(spec.ranks, [&](Communicator& comm) {
      Run run(spec, comm);
      for (int step = 0; step < (&mode == kModes ? 150 : 1); ++step)
        if (const double loss = run.step(); &mode == kModes && comm.rank() == 0)
          losses.push_back(loss);
      states += run.memory.ledger().live_total() - run.memory.ledger().live(MemoryUse::activation);
    });
    lesson.number(mode.key, states, mode.bytes * all, mode.formula);
  }
  lesson.number("first_loss", std::round(losses[0] * 1000) / 1000, std::log(spec.model.vocab), 0.15,
                "ln V, within 0.15");
  lesson.say(str("~ after 150 steps the loss is ", losses.back()));
  lesson.check("it knows the batch by heart: the loss is below 0.1", losses.back() < 0.1);
}

int main(int argc, char** argv) {
  const Flag layers{"--layers", "L", "blocks of the model", "2", 1, 4},
      batch{"--batch", "B", "windows in the batch", "4", 1, 4};
  return run(argc, argv,
             {"03_gpt", "What does one training step cost in bytes?", 1, 4, {layers, batch}}, body);
}
