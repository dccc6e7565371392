// Distributed data parallel: are N ranks with B sequences each the same as one rank with N*B, and
// to how many bits? And three mistakes that do not crash. The library's version is stages/ddp.cpp.
#include <cmath>

#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

enum class Mistake { none, forget_division, average_losses };

// stages/ddp.cpp with a mistake, and with a weight for each rank's gradient.
struct OwnDdp final : Stage {
  using Stage::Stage;
  Mistake mistake = Mistake::none;
  double weight = 1;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_full_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override {
    if (mistake == Mistake::average_losses) return {};  // only the printed loss is a mean
    for (float& g : u.full_gradient.data<float>()) g *= float(weight);
    const Reduction how = mistake == Mistake::forget_division ? Reduction::sum : Reduction::mean;
    comm().all_reduce(u.full_gradient, how, {u.name() + " gradient", Purpose::gradient}).wait();
    return {};
  }
  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }
};

TrainingSpec one_rank(Lesson& lesson, int64_t sequences) {
  TrainingSpec spec = training_m(lesson, StageKind::ddp);
  spec.ranks = 1, spec.micro_batch = sequences;
  return spec;
}

// Odd ranks get 3 sequences, even ranks 1, which fills their 3 rows.
int64_t sequences_of(int64_t rank) { return rank % 2 == 0 ? 1 : 3; }
struct UnequalRows final : BatchSource {
  Shape input_row() const override { return text_m().input_row(); }
  Shape target_row() const override { return text_m().target_row(); }
  void fill_rows(int64_t at, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    const int64_t T = text_m().block_size(), rank = at / 3, first = rank + 2 * (rank / 2);
    for (int64_t row = 0; row < 3; ++row)
      text_m().fill_rows(first + row % sequences_of(rank), ids.subspan(size_t(row * T), size_t(T)),
                         targets.subspan(size_t(row * T), size_t(T)));
  }
};

// One step under ddp with a mistake, or with weights for the gradients of the ranks.
RunM train_own(Lesson& lesson, TrainingSpec spec, Mistake mistake,
               const std::function<double(int rank)>& weight = {}) {
  spec.make_stage = [=](auto& units, auto& comm, Memories memories, auto& options) {
    auto stage = std::make_unique<OwnDdp>(units, comm, memories, options);
    stage->mistake = mistake;
    if (weight) stage->weight = weight(comm.rank());
    stage->start();
    return stage;
  };
  return train_m(lesson, spec);
}

void equal_batches(Lesson& lesson, const RunM& one, const RunM& ddp) {
  const int N = lesson.ranks();
  const int64_t padded = sizes_m(N).padded();
  const double off = relative_difference(ddp.gradient, one.gradient);
  lesson.say(
      str("\n1 rank x ", N, "*B and ", N, " ranks x B: same sequences, same weights, 1 step"));
  lesson.say(str("~ loss ", one.steps[0].loss, " and ", ddp.steps[0].loss, "; gradients agree to ",
                 off == 0 ? 24 : int(-std::log2(off)), " of 24 bits"));
  lesson.check("the gradients agree to 18 bits or more: another order of additions", off < 0x1p-18);
  lesson.number("different_weights", different_weights(ddp), 1, "1: all ranks have the same bits");
  lesson.number("allreduce_bytes",
                sent_bytes(ddp.ranks[0], Collective::all_reduce, Purpose::gradient),
                2 * (N - 1) * 4 * padded / N, str("2 (N-1)/N x 4 B x ", with_commas(padded)));
  lesson.number("state_bytes", ddp.ranks[0].rest.live_total(), 16 * padded,
                str("(4 + 4 + 8) B x ", with_commas(padded), ": N changes only the padding"));
}

void wrong_reductions(Lesson& lesson, const RunM& right) {
  const int N = lesson.ranks();
  TrainingSpec spec = training_m(lesson, StageKind::ddp);
  lesson.say("\nmistake: no division by N. AdamW divides by the gradient's size and hides it");
  const RunM sum = train_own(lesson, spec, Mistake::forget_division);
  lesson.number("norm_without_division", sum.steps[0].grad_norm / right.steps[0].grad_norm, N,
                1e-6 * N, "N times the right norm: clipping cuts too much");

  lesson.say("\nmistake: average the losses, not the gradients");
  const RunM losses = train_own(lesson, spec, Mistake::average_losses);
  lesson.check("the printed loss has the right bits and does not show the mistake",
               losses.steps[0].loss == right.steps[0].loss);
  lesson.number("weights_that_drift", different_weights(losses), N,
                "N: each rank trains its own model");
}

void unequal_tokens(Lesson& lesson) {
  const int N = lesson.ranks(), all = N + 2 * (N / 2);
  const UnequalRows rows;
  TrainingSpec spec = training_m(lesson, StageKind::ddp);
  spec.data = &rows, spec.micro_batch = 3;
  lesson.say("\nmistake: odd ranks have 3 sequences, even ranks 1, and their means count the same");
  const RunM one = train_m(lesson, one_rank(lesson, all)), means = train_m(lesson, spec),
             weighted = train_own(lesson, spec, Mistake::none,
                                  [=](int rank) { return double(N * sequences_of(rank)) / all; });
  const double off = relative_difference(means.gradient, one.gradient);
  lesson.say(str("~ the gradient is wrong by ", off, " of its length"));
  lesson.check("the gradient is wrong by more than a hundredth of its length", off > 0.01);
  lesson.check("with a weight of N x own / all sequences it is right to 18 bits",
               relative_difference(weighted.gradient, one.gradient) < 0x1p-18);
}

int main(int argc, char** argv) {
  const About about{.name = "05_ddp",
                    .question = "Are N ranks x B the same as 1 rank x N*B, and to how many bits?",
                    .flags = {{"--right-only", "", "leave the mistakes out"}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const RunM one = train_m(lesson, one_rank(lesson, lesson.ranks() * kRowsM)),
               ddp = train_m(lesson, training_m(lesson, StageKind::ddp), true);
    equal_batches(lesson, one, ddp);
    if (lesson.ranks() == 1)
      return lesson.say("\nThe mistakes need two ranks or more: try --ranks 2.");
    if (lesson.on("--right-only")) return;
    wrong_reductions(lesson, ddp);
    unequal_tokens(lesson);
  });
}
