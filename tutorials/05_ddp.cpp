// Distributed data parallel: are N ranks with B sequences each the same as one rank with N*B, and
// to how many bits? And four mistakes that train all the same. The library's version is
// stages/ddp.cpp.
#include <cmath>
#include <map>

#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tutorials/lesson/trial.h"

using namespace zl;
using namespace zl::lesson;

enum class Mistake { forget_division, average_losses, last_micro_batch };

// stages/ddp.cpp with a mistake in it.
struct WrongDdp final : Stage {
  WrongDdp(std::vector<Unit>& units, Communicator& comm, Memory& memory,
           const StageOptions& options, Mistake mistake)
      : Stage(units, comm, memory, options), mistake(mistake) {}
  const char* name() const override { return "wrong ddp"; }
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make_gradient(m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.full());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }
  Work reduce(Unit& u) override {
    const Tensor& gradient = memory(u).gradient;
    if (mistake == Mistake::average_losses)
      return {};  // the loss is averaged for the log, the gradients are not
    if (mistake == Mistake::last_micro_batch &&
        !last_micro_batch()) {  // these will never be reduced
      kernel::copy(gradient, earlier.emplace(&u, make_gradient(gradient.numel())).first->second);
      kernel::fill(0, gradient);
      return {};
    }
    const Reduction how = mistake == Mistake::forget_division ? Reduction::sum : Reduction::mean;
    return comm().all_reduce(gradient, how, {u.name + " gradient", Purpose::gradient});
  }
  void reduced(Unit& u) override {
    if (last_micro_batch() && earlier.contains(&u))
      kernel::accumulate(earlier.at(&u), memory(u).gradient);
  }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }
  void update(Unit& u, double lr, float scale) override {
    memory(u).optimizer->update(memory(u).parameter, memory(u).gradient, lr, scale);
  }

  Mistake mistake;
  std::map<Unit*, Tensor> earlier;
};

void equal_batches(Lesson& lesson, const TrialRank& one, const std::vector<TrialRank>& ddp) {
  const int N = lesson.ranks();
  const int64_t padded = sizes_m(N).padded();
  const double off = relative_difference(ddp[0].gradient, one.gradient);
  lesson.say(str("\n1 rank x ", N, "*B and ", N,
                 " ranks x B: the same sequences, the same weights, one step"));
  lesson.say(str("~ loss ", one.losses[0], " and ", ddp[0].losses[0], "; gradients agree to ",
                 off == 0 ? 24 : int(-std::log2(off)), " of 24 bits"));
  lesson.check("the gradients agree to 18 bits or more: sums of the same terms in another order",
               off < std::ldexp(1, -18));
  lesson.number("different_weights", different_weights(ddp), 1, "1: every rank has the same bits");
  lesson.number("allreduce_bytes",
                sent_bytes(ddp[0].log, Collective::all_reduce, Purpose::gradient, N),
                2 * (N - 1) * 4 * padded / N, str("2 (N-1)/N x 4 B x ", with_commas(padded)));
  lesson.number("state_bytes", ddp[0].rest.live_total(), 16 * padded,
                str("(4 + 4 + 8) B x ", with_commas(padded), ", whatever N is"));
}

void wrong_reductions(Lesson& lesson, const TrialRank& right) {
  const int N = lesson.ranks();
  const auto trial = [&](Mistake mistake, int64_t micro_batches) {
    const auto make = [&](auto& units, auto& comm, auto& memory, auto& options) {
      return std::make_unique<WrongDdp>(units, comm, memory, options, mistake);
    };
    return run_trial(lesson, {.make = make, .ranks = N, .micro_batches = micro_batches});
  };
  lesson.say(
      "\nmistake: forget 1/N. AdamW hides it, as it divides by the gradient's size; clipping does "
      "not");
  lesson.number("norm_without_division",
                trial(Mistake::forget_division, 1)[0].norms[0] / right.norms[0], N, 1e-6 * N,
                "N times the right one");

  lesson.say("\nmistake: average the losses, not the gradients");
  const auto losses = trial(Mistake::average_losses, 1);
  lesson.check("the loss that is printed is right to the last bit, so nobody notices",
               losses[0].losses == right.losses);
  lesson.number("weights_that_drift", different_weights(losses), N,
                "N: each rank trains a model of its own");

  lesson.say("\nmistake: with 2 micro-batches, reduce only what the last one added");
  const auto last = trial(Mistake::last_micro_batch, 2),
             whole = run_trial(lesson, {.ranks = N, .micro_batches = 2});
  const double off = relative_difference(last[0].gradient, whole[0].gradient);
  lesson.say(str("~ the gradient is wrong by ", off, " of its length"));
  lesson.check("the gradient is wrong by more than a twentieth of its length", off > 0.05);
  lesson.number("weights_after_last_only", different_weights(last), N,
                "N: the rest of the gradient was each rank's own");
}

void unequal_tokens(Lesson& lesson) {
  const int N = lesson.ranks(), all = N * (N + 1) / 2;
  lesson.say("\nmistake: rank r has r+1 sequences, and every rank's mean counts the same");
  const auto rows = [](int rank, int64_t) { return Rows{rank * (rank + 1) / 2, rank + 1}; };
  const auto one = run_trial(lesson, {.rows = [&](int, int64_t) { return Rows{0, all}; }});
  const auto means = run_trial(lesson, {.ranks = N, .rows = rows});
  const auto weighted = run_trial(lesson, {.ranks = N, .rows = rows, .scale = [&](int rank) {
                                             return double(N * (rank + 1)) / all;
                                           }});
  const double off = relative_difference(means[0].gradient, one[0].gradient);
  lesson.say(str("~ the gradient is wrong by ", off, " of its length"));
  lesson.check("the gradient is wrong by more than a hundredth of its length", off > 0.01);
  lesson.check("a weight of N x own / all sequences mends it to 18 bits",
               relative_difference(weighted[0].gradient, one[0].gradient) < std::ldexp(1, -18));
}

int main(int argc, char** argv) {
  const About about{.name = "05_ddp",
                    .question = "Are N ranks x B the same as 1 rank x N*B, and to how many bits?",
                    .flags = {{"--right-only", "", "leave the mistakes out"}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const auto one = run_trial(lesson, {.rows = [&](int, int64_t) {
                                 return Rows{0, lesson.ranks() * kRowsM};
                               }});
    const auto ddp = run_trial(lesson, {.ranks = lesson.ranks(), .watched = true});
    equal_batches(lesson, one[0], ddp);
    if (lesson.ranks() == 1)
      return lesson.say("\nOne rank makes no mistakes with the others: try --ranks 2.");
    if (lesson.on("--right-only")) return;
    wrong_reductions(lesson, ddp[0]);
    unequal_tokens(lesson);
  });
}
