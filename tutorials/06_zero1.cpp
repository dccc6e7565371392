// ZeRO stage 1: who updates which parameter, and what did that save? The library's version is
// stages/zero1.cpp.
#include "tensor/error.h"
#include "tutorials/lesson/trial.h"

using namespace zl;
using namespace zl::lesson;

// What many tutorials build: all-reduce the gradients as before, update the own shard, gather the
// parameters.
struct AllReducingZero1 final : Stage {
  using Stage::Stage;
  const char* name() const override { return "zero1 with all-reduce"; }
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make_gradient(m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.shard());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }
  Work reduce(Unit& u) override {
    return comm().all_reduce(memory(u).gradient, Reduction::mean,
                             {u.name + " gradient", Purpose::gradient});
  }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }
  void update(Unit& u, double lr, float scale) override {
    memory(u).optimizer->update(own(memory(u).parameter), own(memory(u).gradient), lr, scale);
  }
  Work share(Unit& u) override {
    return comm().all_gather(memory(u).parameter, {u.name + " parameter", Purpose::parameter});
  }
};

// One character per 60th of a unit: the rank that owns its last element, '-' where that is padding.
std::string strip(const Partition& layout, int ranks) {
  std::string owner(size_t(layout.full()), '-'), strip;
  for (int r = 0; r < ranks; ++r)
    for (const Partition::Piece& piece : layout.pieces(r * layout.shard(), layout.shard()))
      owner.replace(size_t(r * layout.shard() + piece.at), size_t(piece.count), size_t(piece.count),
                    char('0' + r));
  for (size_t cell = 1; cell <= 60; ++cell) strip += owner[cell * owner.size() / 60 - 1];
  return strip;
}

void ownership(Lesson& lesson, const TrialRank& rank) {
  const int N = lesson.ranks();
  const SizesM sizes = sizes_m(N);
  lesson.say(
      "\nwho updates what: each unit in 60 parts, the owner of each part's last element, - "
      "padding");
  int64_t padded = 0, owned = 0, owned_by_one = 0;
  for (size_t u = 0; u < rank.layouts.size(); ++u) {
    const Partition& layout = rank.layouts[u];
    std::string name = "  " + rank.model->units()[u].name;
    name.resize(8, ' ');
    lesson.say(name + strip(layout, N));
    padded += layout.full();
    owned_by_one += layout.shard();
    for (int r = 0; r < N; ++r)
      for (const Partition::Piece& piece : layout.pieces(r * layout.shard(), layout.shard()))
        owned += piece.count;
  }
  lesson.number("parameters", owned, sizes.parameters(),
                "V C + T C + 2 C + L (12 C^2 + 13 C), each with one owner");
  lesson.number("padding", padded - owned, sizes.padded() - sizes.parameters(),
                str("each unit up to a multiple of 16 N = ", 16 * N));
  lesson.number("owned", owned_by_one, sizes.padded() / N,
                str(with_commas(sizes.padded()), " / N, padding too"));
}

void memory(Lesson& lesson, const TrialRank& ddp, const TrialRank& zero1) {
  const int64_t N = lesson.ranks(), padded = sizes_m(int(N)).padded();
  const std::string size = with_commas(padded);
  lesson.say("\nwhat a rank keeps, in bytes");
  lesson.number("parameter_bytes", zero1.rest.live(MemoryUse::parameter), 4 * padded,
                "4 x " + size);
  lesson.number("gradient_bytes", zero1.rest.live(MemoryUse::gradient), 4 * padded, "4 x " + size);
  lesson.number("optimizer_bytes", zero1.rest.live(MemoryUse::optimizer_state), 8 * padded / N,
                "8 x " + size + " / N");
  lesson.number("state_bytes", zero1.rest.live_total(), (8 * N + 8) * padded / N,
                "(4 + 4 + 8/N) x " + size);
  lesson.number("ddp_state_bytes", ddp.rest.live_total(), 16 * padded, "(4 + 4 + 8) x " + size);
}

void traffic(Lesson& lesson, const TrialRank& ddp, const TrialRank& zero1, const TrialRank& wrong) {
  const int64_t N = lesson.ranks(), steps = int64_t(zero1.losses.size());
  const int64_t once = (N - 1) * 4 * sizes_m(int(N)).padded() / N;
  const auto sent = [&](const TrialRank& rank, Collective collective, Purpose purpose) {
    return sent_bytes(rank.log, collective, purpose, int(N)) / steps;
  };
  lesson.say("\nwhat a rank sends in one step, in bytes; once = (N-1)/N x 4 x " +
             with_commas(sizes_m(int(N)).padded()));
  const int64_t reduced = sent(zero1, Collective::reduce_scatter, Purpose::gradient),
                gathered = sent(zero1, Collective::all_gather, Purpose::parameter);
  lesson.number("reduce_scatter_bytes", reduced, once, "once, of gradients");
  lesson.number("all_gather_bytes", gathered, once, "once, of parameters");
  lesson.number("ddp_bytes", sent(ddp, Collective::all_reduce, Purpose::gradient), 2 * once,
                "2 x once: an all-reduce is both of these");
  const int64_t all_reduced = sent(wrong, Collective::all_reduce, Purpose::gradient),
                shared = sent(wrong, Collective::all_gather, Purpose::parameter);
  lesson.number("mistaken_bytes", all_reduced + shared, 3 * once,
                "3 x once: all-reduce and all-gather, 1.5 times too much");
}

int main(int argc, char** argv) {
  const About about{
      .name = "06_zero1",
      .question = "Who updates which parameter, and what did that save?",
      .flags = {{"--clip", "", "clip the gradient to norm 0.5; the norm is measured in any case"},
                {"--steps", "N", "optimizer steps before the bits are compared", "3", 1, 20}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const double max_norm = lesson.on("--clip") ? 0.5 : 0;
    const auto train = [&](auto make, bool watched) {
      return run_trial(lesson, {.make = make,
                                .ranks = lesson.ranks(),
                                .steps = lesson.count("--steps"),
                                .max_norm = max_norm,
                                .watched = watched});
    };
    const auto ddp = train(make_ddp, false), zero1 = train(make_zero1, true);
    const auto wrong = train(
        [](auto& units, auto& comm, auto& m, auto& options) {
          return std::make_unique<AllReducingZero1>(units, comm, m, options);
        },
        false);
    ownership(lesson, zero1[0]);
    memory(lesson, ddp[0], zero1[0]);
    traffic(lesson, ddp[0], zero1[0], wrong[0]);
    lesson.say(
        str("\nafter ", lesson.count("--steps"), " steps", max_norm > 0 ? " with clipping" : ""));
    lesson.check("losses and norms have the bits of ddp",
                 zero1[0].losses == ddp[0].losses && zero1[0].norms == ddp[0].norms);
    lesson.check("all weights have the bits of ddp, on every rank",
                 zero1[0].weights == ddp[0].weights && different_weights(zero1) == 1);
    lesson.check(
        "the same holds for the mistaken version: it sends more, but the result is the same",
        wrong[0].weights == ddp[0].weights);
  });
}
