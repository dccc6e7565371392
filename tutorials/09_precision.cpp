// Mixed precision: what must stay in 32 bits when the rest has 16? The library's versions are
// optim/flat_optimizer.h (master weights) and optim/loss_scaler.cpp.
#include <algorithm>
#include <cmath>

#include "tutorials/09_sixteen_bits.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

void master_weights(Lesson& lesson) {
  lesson.say("\na weight of 1 after 1,024 updates of 2^-12");
  lesson.run_ranks(1, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, lesson.backend(), comm.events());
    for (const auto& [type, m] : {std::pair{Dtype::f16, 10}, {Dtype::bf16, 7}}) {
      const std::string key = name(type);
      lesson.number(key + "_alone", after_steps(memory, type, false, 1024, 0x1p-12), 1, 0,
                    str("1: each update is below half of 2^-", m, ", and rounded away"));
      lesson.number(key + "_with_master", after_steps(memory, type, true, 1024, 0x1p-12), 1.25, 0,
                    "1 + 1,024 x 2^-12: added in fp32, then rounded");
    }
  });
}

// What a rank keeps in fp32 and in bf16. A `/N` is where the stage shards.
void states(Lesson& lesson) {
  const int64_t N = lesson.ranks(), P = sizes_m(int(N)).padded();
  lesson.say("\nbytes between steps: (parameters + gradients + optimizer) P; P = " +
             with_commas(P));
  for (const StageKind stage : kStages)
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
      TrainingSpec spec = training_m(lesson, stage);
      spec.engine.precision = type;
      const int64_t measured = train_m(lesson, spec).ranks[0].rest.live_total(),
                    optimizer = type == Dtype::f32 ? 8 : 12;
      int64_t expected = 0;
      std::string formula;
      for (const auto& [bytes, sharded] : {std::pair{size_of(type), shards_parameter(stage)},
                                           {size_of(type), shards_gradient(stage)},
                                           {optimizer, shards_optimizer(stage)}}) {
        expected += bytes * P / (sharded ? N : 1);
        formula += str(formula.empty() ? "(" : " + ", bytes, sharded ? "/N" : "");
      }
      lesson.number(str(name(stage), "_", name(type)), measured, expected, formula + ") P");
    }
}

// What does become smaller: activations and gradients that are communicated.
void halves(Lesson& lesson) {
  const int64_t N = lesson.ranks(), P = sizes_m(int(N)).padded();
  const GptConfig m = model_m();
  const int64_t L = m.layers, C = m.width, H = m.heads, BT = kRowsM * m.block_size;
  lesson.say("\nwhat does become smaller, under zero1");
  for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
    TrainingSpec spec = training_m(lesson, StageKind::zero1);
    spec.engine.precision = type;
    const RankReport rank = train_m(lesson, spec).ranks[0];
    const int64_t b = size_of(type);
    lesson.number(str("activations_", name(type)), rank.rest.peak(MemoryUse::activation),
                  b * BT * (10 * L + 5) * C + 4 * (BT * (L * (4 + H) + 2) + 1),
                  str(b, " x BT (10 L + 5) C + 4 x (BT (L (4 + H) + 2) + 1), at the peak"));
    lesson.number(str("sent_", name(type)), sent_for_states(rank), 2 * b * (N - 1) * P / N,
                  str("2 x ", b, " x (N-1)/N x P, in a step"));
  }
}

TrainingSpec in_fp16(Lesson& lesson, int64_t steps, int power_of_scale) {
  TrainingSpec spec = training_m(lesson, StageKind::zero1);
  spec.engine.precision = Dtype::f16;
  spec.engine.loss_scale = {.initial_scale_power = power_of_scale, .window = 2, .hysteresis = 1};
  spec.steps = steps;
  return spec;
}

// Puts an infinity into the gradient of the last rank, for the step after `step`.
auto overflow_after(int64_t step) {
  return [step](Trainer& rank) {
    if (rank.steps() == step && rank.comm().rank() == rank.comm().size() - 1)
      kernel::fill(INFINITY, rank.engine().stage().units()[1].full_gradient.slice(0, {1}));
  };
}

void skipped_step(Lesson& lesson) {
  const RunM two = train_m(lesson, in_fp16(lesson, 2, 10), true, overflow_after(1)),
             one = train_m(lesson, in_fp16(lesson, 1, 10));
  lesson.say("\nzero1 in fp16: in step 2 one gradient of the last rank is infinite");
  const auto& found = two.steps[1].nonfinite;
  lesson.number("found_on_rank", found ? found->rank : -1, lesson.ranks() - 1, "N - 1");
  const auto& rows = two.ranks[0].log.rows();
  lesson.number("gathers", rows.at({Collective::all_gather, Purpose::parameter}).calls,
                1 + model_m().layers, "1 + L units, in step 1 only");
  lesson.check("every rank skips step 2", two.steps[1].skipped && different_weights(two) == 1);
  lesson.check("all weights have the bits that they had after step 1", two.weights == one.weights);
}

void loss_scale(Lesson& lesson) {
  lesson.say("\nthe loss scale of 8 steps, with a window of 2 steps; at ! we put in an infinity");
  double scale = 1024;
  int64_t good = 0, right = 0;  // steps
  std::string line = " ";
  for (const StepRecord& step :
       train_m(lesson, in_fp16(lesson, 8, 10), false, overflow_after(3)).steps) {
    right += step.loss_scale == scale && step.skipped == (step.step == 4);
    line += str(" ", with_commas(int64_t(*step.loss_scale)), step.skipped ? "!" : "");
    good = step.skipped ? 0 : good + 1;
    scale *= step.skipped ? 0.5 : good > 1 && good % 2 == 1 ? 2 : 1;
  }
  lesson.say(line);
  lesson.number("by_the_rule", right, 8,
                "steps: half after !, twice after 3, 5, 7, ... good steps");
  const std::vector<StepRecord> search = train_m(lesson, in_fp16(lesson, 24, 32)).steps;
  const auto fits = std::ranges::find(search, false, &StepRecord::skipped);
  const double power = fits == search.end() ? 32 : std::log2(*fits->loss_scale);
  const int64_t BT = kRowsM * model_m().block_size;
  lesson.number("first_that_fits", power, 0, 16 + std::log2(BT),
                "16 + log2 BT: a logit has the gradient (p - 1) S / BT");
  lesson.check("each scale above it overflows once", fits - search.begin() == 32 - power);
}

int main(int argc, char** argv) {
  const About about{.name = "09_precision",
                    .question = "What must stay in 32 bits when the rest has 16?"};
  return run(argc, argv, about, [](Lesson& lesson) {
    master_weights(lesson);
    states(lesson);
    halves(lesson);
    skipped_step(lesson);
    loss_scale(lesson);
  });
}
