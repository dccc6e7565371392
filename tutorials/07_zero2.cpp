// ZeRO stage 2: why can it need more memory than stage 1? The library's version is
// stages/zero2.cpp.
#include <algorithm>

#include "stages/predict/dry_run.h"
#include "tensor/error.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;
using namespace zl::recording;

TrainingSpec spec_of(Lesson& lesson, StageKind stage) {
  TrainingSpec spec = training_m(lesson, stage, lesson.count("--layers"));
  spec.micro_batch = lesson.count("--rows");
  const Recompute recompute = lesson.on("--recompute") ? Recompute::full : Recompute::selective;
  spec.make_model = [layers = lesson.count("--layers"), recompute] {
    return std::make_unique<Gpt>(model_m(layers), recompute);
  };
  return spec;
}

SizesM sizes_of(const Lesson& lesson) { return sizes_m(lesson.ranks(), lesson.count("--layers")); }

// Trains under stage 2 with this bucket and shows the peaks. Returns that of all uses [B].
int64_t sweep_one(Lesson& lesson, int64_t bucket, bool draw) {
  const int64_t N = lesson.ranks();
  const SizesM sizes = sizes_of(lesson);
  TrainingSpec spec = spec_of(lesson, StageKind::zero2);
  spec.engine.reduce_bucket_size = bucket;
  const MemoryLedger ledger = train_m(lesson, spec, draw).ranks[0].rest;
  lesson.say(str("\nreduce_bucket_size ", with_commas(bucket)));
  if (draw)
    for (const std::string& row : unit_map(lesson.recording(), Drawn::gradient)) lesson.say(row);
  // A rank holds its shard, root's full gradient during all of backward, and the full gradients of
  // blocks until their bucket is full.
  const int64_t blocks =
      std::min(sizes.layers, (bucket + sizes.padded_block - 1) / sizes.padded_block);
  lesson.number(str("gradient_", bucket), ledger.peak(MemoryUse::gradient),
                4 * (sizes.padded() / N + sizes.padded_root + blocks * sizes.padded_block),
                str("4 x (", with_commas(sizes.padded()), "/N + ", with_commas(sizes.padded_root),
                    " root + ", blocks, " x ", with_commas(sizes.padded_block), ")"));
  lesson.number(str("total_", bucket), ledger.peak_total(), dry_run(spec, 0).rest.peak_total(),
                "dry run; includes activations");
  return ledger.peak_total();
}

void sweep(Lesson& lesson) {
  const SizesM sizes = sizes_of(lesson);
  const TrainingSpec spec = spec_of(lesson, StageKind::zero1);
  const MemoryLedger zero1 = train_m(lesson, spec).ranks[0].rest;
  const int64_t total = zero1.peak_total();
  lesson.say("\nstage 1 keeps the full gradient; peaks of a rank in bytes");
  lesson.number("gradient_zero1", zero1.peak(MemoryUse::gradient), 4 * sizes.padded(),
                "4 x " + with_commas(sizes.padded()));
  lesson.number("total_zero1", total, dry_run(spec, 0).rest.peak_total(),
                "dry run; includes activations");

  sweep_one(lesson, 1, true);
  sweep_one(lesson, sizes.padded_block + 1, false);
  const int64_t huge = sweep_one(lesson, 500'000'000, true);
  lesson.say(str("  with DeepSpeed's default bucket the total peak is ",
                 huge > total ? "HIGHER" : "lower", " than stage 1's: ", with_commas(huge), " and ",
                 with_commas(total)));
}

void several_micro_batches(Lesson& lesson) {
  const int64_t N = lesson.ranks(), A = lesson.count("--micro-batches"),
                padded = sizes_of(lesson).padded(), once = (N - 1) * 4 * padded / N;
  lesson.say(str("\nwhat a rank sends in a step of A = ", A,
                 " micro-batches; once = (N-1)/N x 4 x ", with_commas(padded)));
  TrainingSpec spec = spec_of(lesson, StageKind::zero1);
  spec.engine.accumulation = A;
  const RunM zero1 = train_m(lesson, spec);
  spec.engine.stage = StageKind::zero2;
  const RunM zero2 = train_m(lesson, spec);
  lesson.number("zero1_bytes", sent_for_states(zero1.ranks[0]), 2 * once,
                "2 x once: it reduces with the last micro-batch");
  lesson.number("zero2_bytes", sent_for_states(zero2.ranks[0]), (A + 1) * once,
                "(A + 1) x once: it keeps no full gradient");
  const bool equal = zero1.weights == zero2.weights;
  lesson.check(A == 1 ? "all weights have the same bits under stages 1 and 2"
                      : "weights have other bits under stage 2, which adds in another order",
               equal == (A == 1));
}

void state(Lesson& lesson) {
  const int64_t N = lesson.ranks(), padded = sizes_of(lesson).padded();
  const RunM ddp = train_m(lesson, spec_of(lesson, StageKind::ddp)),
             zero2 = train_m(lesson, spec_of(lesson, StageKind::zero2));
  lesson.say("\nbetween steps stage 2 keeps what the paper says");
  lesson.number("state_bytes", zero2.ranks[0].rest.live_total(), 4 * padded + 12 * padded / N,
                "(4 + 4/N + 8/N) x " + with_commas(padded));
  lesson.check("all weights equal ddp's bit for bit", zero2.weights[0] == ddp.weights[0]);
}

int main(int argc, char** argv) {
  const About about{
      .name = "07_zero2",
      .question = "Why can ZeRO-2 use more memory than ZeRO-1?",
      .flags = {{"--layers", "L", "blocks of the model", 2, 1, 12},
                {"--rows", "B", "sequences of a micro-batch", 4, 1, 16},
                {"--recompute", "", "blocks keep only their input and run again in backward"},
                {"--micro-batches", "A", "of one step, in the last part", 4, 1, 8}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    state(lesson);
    sweep(lesson);
    several_micro_batches(lesson);
  });
}
