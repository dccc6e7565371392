// ZeRO stage 3: when does a rank hold a layer's full weights, and when does sharding lose? The
// library's version is stages/zero3.cpp.
#include "stages/predict/dry_run.h"
#include "tensor/error.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;
using namespace zl::recording;

// [B] Peak of a rank's parameters: its shard, full root, and one full block at a time.
int64_t parameter_peak(const SizesM& sizes, int64_t N) {
  return 4 * (sizes.padded() / N + sizes.padded_root + sizes.padded_block);
}

void full_parameters(Lesson& lesson, const RunM& run, const SizesM& sizes) {
  const int64_t N = lesson.ranks();
  const MemoryLedger& ledger = run.ranks[0].rest;
  lesson.say(
      "\nwhen rank 0 holds the full parameters of each unit: # full, . shard; a column is an "
      "event");
  const std::vector<std::string> map = unit_map(lesson.recording(), Drawn::parameter);
  for (const std::string& row : map) lesson.say(row);
  if (N > 1)
    lesson.number("whole_at_once", most_at_once(map), 2,
                  "full units: root and the block that runs");
  lesson.number("parameter_rest_bytes", ledger.live(MemoryUse::parameter), 4 * sizes.padded() / N,
                "4 x " + with_commas(sizes.padded()) + " / N, between steps");
  lesson.number("parameter_peak_bytes", ledger.peak(MemoryUse::parameter), parameter_peak(sizes, N),
                str("4 x (", with_commas(sizes.padded()), "/N + ", with_commas(sizes.padded_root),
                    " root + ", with_commas(sizes.padded_block), " block)"));
  lesson.number("state_bytes", ledger.live_total(), 16 * sizes.padded() / N,
                "(4 + 4 + 8) x " + with_commas(sizes.padded()) + " / N");
}

void traffic(Lesson& lesson, const RunM& zero3, const RunM& ddp, const SizesM& sizes) {
  const int64_t N = lesson.ranks(), L = sizes.layers;
  const auto once = [&](int64_t elements) { return (N - 1) * 4 * elements / N; };
  const RankReport& rank0 = zero3.ranks[0];
  lesson.say("\nwhat a rank sends in one step, in bytes");
  lesson.number("gathers", rank0.log.rows().at({Collective::all_gather, Purpose::parameter}).calls,
                1 + 2 * L, "root once, each block in forward and in backward");
  const int64_t gathered = sent_bytes(rank0, Collective::all_gather, Purpose::parameter);
  const int64_t reduced = sent_bytes(rank0, Collective::reduce_scatter, Purpose::gradient);
  lesson.number("gathered_bytes", gathered, once(sizes.padded_root + 2 * L * sizes.padded_block),
                str("(N-1)/N x 4 x (", with_commas(sizes.padded_root), " + 2 L x ",
                    with_commas(sizes.padded_block), ")"));
  lesson.number("reduced_bytes", reduced, once(sizes.padded()),
                "(N-1)/N x 4 x " + with_commas(sizes.padded()));
  const int64_t all_reduced = sent_bytes(ddp.ranks[0], Collective::all_reduce, Purpose::gradient);
  lesson.number("ddp_bytes", all_reduced, 2 * once(sizes.padded()), "twice that");
  lesson.number("saved_by_root", 3 * all_reduced / 2 - gathered - reduced, once(sizes.padded_root),
                "below the paper's 3/2 of ddp: root stays full until backward");
}

// Peaks of parameter bytes for more and more layers. Those of ddp are 4 x padded.
void when_it_wins(Lesson& lesson) {
  const int64_t N = lesson.ranks();
  int64_t wins = 0, must_win = 0;
  lesson.say("\npeak of parameter bytes with L layers, beside ddp's");
  for (const int64_t L : {1, 2, 3, 4, 8, 12}) {
    const SizesM sizes = sizes_m(int(N), L);
    const auto peak = [&](StageKind stage) {
      return run_training(training_m(lesson, stage, L)).ranks[0].rest.peak(MemoryUse::parameter);
    };
    const int64_t ddp = peak(StageKind::ddp), zero3 = peak(StageKind::zero3);
    if (wins == 0 && zero3 < ddp) wins = L;
    // Stage 3 adds one full block and root's shard; it saves all of the L blocks but a shard.
    if (must_win == 0 &&
        N * sizes.padded_block + sizes.padded_root < (N - 1) * L * sizes.padded_block)
      must_win = L;
    lesson.number(str("peak_", L, "_layers"), zero3, parameter_peak(sizes, N),
                  str(zero3 < ddp ? "wins" : "LOSES", " against ", with_commas(ddp)));
  }
  lesson.number("layers_to_win", wins, must_win,
                "least L with block + root/N < (1 - 1/N) L block; 0: none");
}

int main(int argc, char** argv) {
  const About about{
      .name = "08_zero3",
      .question = "When does a rank hold a layer's full weights, and when does sharding lose?",
      .flags = {{"--layers", "L", "blocks of the model", 2, 1, 12}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const int64_t layers = lesson.count("--layers");
    const SizesM sizes = sizes_m(lesson.ranks(), layers);
    const TrainingSpec spec = training_m(lesson, StageKind::zero3, layers);
    const RunM zero3 = train_m(lesson, spec, true);
    full_parameters(lesson, zero3, sizes);
    const RunM ddp = train_m(lesson, training_m(lesson, StageKind::ddp, layers));
    lesson.number("total_peak_bytes", zero3.ranks[0].rest.peak_total(),
                  dry_run(spec, 0).rest.peak_total(), "dry run; includes activations");
    traffic(lesson, zero3, ddp, sizes);
    lesson.check("all weights equal ddp's bit for bit", zero3.weights[0] == ddp.weights[0]);
    when_it_wins(lesson);
  });
}
