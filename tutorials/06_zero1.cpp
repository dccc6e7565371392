// ZeRO stage 1: who updates which parameter, and what did that save? The library's version is
// stages/zero1.cpp.
#include "tensor/error.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

// What many tutorials build: all-reduce the gradients as in ddp, update the local shard, gather the
// parameters.
struct AllReducingZero1 final : Stage {
  using Stage::Stage;
  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override { return all_reduce(u, u.full_gradient); }
  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(local_shard(u.full_parameter), local_shard(u.full_gradient), step.lr,
                        step.gradient_scale);
  }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }
};

// One character per 60th of a unit: the rank that owns its last element, '-' for padding.
std::string strip(const Partition& partition, int ranks) {
  std::string owner(size_t(partition.full()), '-'), strip;
  for (int r = 0; r < ranks; ++r)
    for (const auto& piece : partition.pieces(r * partition.shard(), partition.shard()))
      std::fill_n(owner.begin() + r * partition.shard() + piece.at, piece.count, char('0' + r));
  for (size_t cell = 1; cell <= 60; ++cell) strip += owner[cell * owner.size() / 60 - 1];
  return strip;
}

void ownership(Lesson& lesson) {
  const int N = lesson.ranks();
  const SizesM sizes = sizes_m(N);
  lesson.say(
      "\nwho updates what: each unit in 60 parts, the owner of each part's last element, - "
      "is padding");
  int64_t padded = 0, owned = 0, owned_by_one = 0;
  Gpt model(model_m());
  for (const Unit& unit : model.units()) {
    const Partition partition(unit, N);
    std::string name = "  " + unit.name;
    name.resize(8, ' ');
    lesson.say(name + strip(partition, N));
    padded += partition.full(), owned_by_one += partition.shard();
    for (int r = 0; r < N; ++r)
      for (const auto& piece : partition.pieces(r * partition.shard(), partition.shard()))
        owned += piece.count;
  }
  lesson.number("parameters", owned, sizes.parameters(),
                "V C + T C + 2 C + L (12 C^2 + 13 C), each with one owner");
  lesson.number("padding", padded - owned, sizes.padded() - sizes.parameters(),
                str("each unit up to a multiple of 16 N = ", 16 * N));
  lesson.number("owned", owned_by_one, sizes.padded() / N,
                str(with_commas(sizes.padded()), " / N, with padding"));
}

void memory(Lesson& lesson, const MemoryLedger& ddp, const MemoryLedger& zero1) {
  const int64_t N = lesson.ranks(), padded = sizes_m(int(N)).padded();
  const std::string size = with_commas(padded);
  lesson.say("\nwhat a rank keeps, in bytes");
  lesson.number("optimizer_bytes", zero1.live(MemoryUse::optimizer_state), 8 * padded / N,
                "8 x " + size + " / N");
  lesson.number("state_bytes", zero1.live_total(), (8 * N + 8) * padded / N,
                "(4 + 4 + 8/N) x " + size);
  lesson.number("ddp_state_bytes", ddp.live_total(), 16 * padded, "(4 + 4 + 8) x " + size);
}

void traffic(Lesson& lesson, const RunM& ddp, const RunM& zero1, const RunM& wrong) {
  const int64_t N = lesson.ranks(), steps = int64_t(zero1.steps.size());
  const int64_t once = (N - 1) * 4 * sizes_m(int(N)).padded() / N;
  const auto sent = [&](const RunM& run, Collective collective, Purpose purpose) {
    return sent_bytes(run.ranks[0], collective, purpose) / steps;
  };
  lesson.say("\nwhat a rank sends in one step, in bytes; once = (N-1)/N x 4 x " +
             with_commas(sizes_m(int(N)).padded()));
  lesson.number("reduce_scatter_bytes", sent(zero1, Collective::reduce_scatter, Purpose::gradient),
                once, "once, of gradients");
  lesson.number("all_gather_bytes", sent(zero1, Collective::all_gather, Purpose::parameter), once,
                "once, of parameters");
  lesson.number("ddp_bytes", sent_for_states(ddp.ranks[0]) / steps, 2 * once,
                "2 x once: an all-reduce is both of these");
  lesson.number("mistaken_bytes", sent_for_states(wrong.ranks[0]) / steps, 3 * once,
                "3 x once: all-reduce and all-gather, 1.5 times too much");
}

int main(int argc, char** argv) {
  const About about{
      .name = "06_zero1",
      .question = "Who updates which parameter, and what did that save?",
      .flags = {{"--clip", "", "clip the gradient to norm 0.5"},
                {"--steps", "K", "optimizer steps before the bits are compared", 3, 1, 20}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const auto spec_of = [&](StageKind stage) {
      TrainingSpec spec = training_m(lesson, stage);
      spec.steps = lesson.count("--steps");
      spec.engine.gradient_clipping = lesson.on("--clip") ? 0.5 : 0;
      return spec;
    };
    const RunM ddp = train_m(lesson, spec_of(StageKind::ddp)),
               zero1 = train_m(lesson, spec_of(StageKind::zero1), true);
    TrainingSpec spec = spec_of(StageKind::zero1);
    spec.make_stage = [](auto& units, auto& comm, Memories memories, auto& options) {
      auto stage = std::make_unique<AllReducingZero1>(units, comm, memories, options);
      stage->start();
      return stage;
    };
    const RunM wrong = train_m(lesson, spec);
    ownership(lesson);
    memory(lesson, ddp.ranks[0].rest, zero1.ranks[0].rest);
    traffic(lesson, ddp, zero1, wrong);
    lesson.say(str("\nafter ", spec.steps, " steps", lesson.on("--clip") ? " with clipping" : ""));
    bool equal = true;
    for (size_t i = 0; i < ddp.steps.size(); ++i)
      equal &= zero1.steps[i].loss == ddp.steps[i].loss &&
               zero1.steps[i].grad_norm == ddp.steps[i].grad_norm;
    lesson.check("losses and norms equal ddp's bit for bit", equal);
    lesson.check("all weights equal ddp's bit for bit, on every rank",
                 zero1.weights == ddp.weights);
    lesson.check("so do the weights of the version with all-reduce, which only sends more",
                 wrong.weights == ddp.weights);
  });
}
