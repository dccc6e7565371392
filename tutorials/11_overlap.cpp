// Overlap and prefetch: what is in flight while a rank computes, and what does that cost? The
// library's versions are in stages/schedule/step_schedule.cpp.
#include <algorithm>

#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;
using namespace zl::recording;

TrainingSpec spec_of(Lesson& lesson, StageKind stage, const Overlap& overlap) {
  TrainingSpec spec = training_m(lesson, stage, lesson.count("--layers"));
  spec.engine.overlap = overlap;
  spec.rank_options.lane = own_lane();  // a second thread of each rank carries out its calls
  return spec;
}
SizesM sizes_of(const Lesson& lesson) { return sizes_m(lesson.ranks(), lesson.count("--layers")); }

// zero2 with and without overlap_comm.
void reductions(Lesson& lesson) {
  const int64_t N = lesson.ranks();
  const SizesM sizes = sizes_of(lesson);
  const std::string shard = str("4 x (", with_commas(sizes.padded()), "/N + ",
                                with_commas(sizes.padded_root), " root + ");
  RunM runs[2];
  for (const bool on : {false, true}) {
    lesson.say(str("\nzero2, overlap_comm ",
                   on ? "true; G: a reduction is in flight, P: an all-gather" : "false"));
    runs[on] = train_m(lesson, spec_of(lesson, StageKind::zero2, {.overlap_comm = on}), on);
    const RankReport& rank = runs[on].ranks[0];
    if (on)
      for (const std::string& row : unit_map(lesson.recording(), Drawn::in_flight)) lesson.say(row);
    const int64_t blocks = on ? std::min<int64_t>(2, sizes.layers) : 1;
    lesson.number(on ? "gradient_on" : "gradient_off", rank.rest.peak(MemoryUse::gradient),
                  4 * (sizes.padded() / N + sizes.padded_root + blocks * sizes.padded_block),
                  str(shard, blocks, " x ", with_commas(sizes.padded_block), ")"));
    lesson.number(on ? "sent_on" : "sent_off", sent_for_states(rank),
                  2 * 4 * (N - 1) * sizes.padded() / N, "2 x (N-1)/N x 4 x the model");
  }
  lesson.check("all weights have the same bits", runs[0].weights == runs[1].weights);
}

// zero3 with prefetch of 0, 1 and 2 blocks, and with all blocks kept for backward.
void gathers(Lesson& lesson) {
  const int64_t N = lesson.ranks();
  const SizesM sizes = sizes_of(lesson);
  const int64_t W = sizes.padded(), root = sizes.padded_root, block = sizes.padded_block;
  std::vector<float> weights;
  for (const int64_t ahead : {0, 1, 2}) {
    const int64_t bucket = ahead == 0 ? 0 : (ahead - 1) * block + 1;
    lesson.say(str("\nzero3, stage3_prefetch_bucket_size ", with_commas(bucket)));
    const RunM run =
        train_m(lesson, spec_of(lesson, StageKind::zero3, {.prefetch_bucket_size = bucket}), true);
    const std::vector<std::string> map = unit_map(lesson.recording(), Drawn::in_flight);
    if (ahead == 1)
      for (const std::string& row : map) lesson.say(row);
    const int64_t blocks = std::min(sizes.layers, 1 + ahead);
    lesson.number(str("in_flight_", ahead), most_at_once(map), std::min(sizes.layers, ahead),
                  "gathers, while a unit computes");
    lesson.number(str("parameter_", ahead), run.ranks[0].rest.peak(MemoryUse::parameter),
                  4 * (W / N + root + blocks * block),
                  str("4 x (", with_commas(W), "/N + ", with_commas(root), " root + ", blocks,
                      " x ", with_commas(block), ")"));
    if (ahead == 0) weights = run.weights[0];
    if (ahead > 0) lesson.check("all weights have the same bits", run.weights[0] == weights);
  }
  lesson.say("\nzero3, stage3_max_reuse_distance without limit: every block stays for backward");
  const RunM run =
      train_m(lesson, spec_of(lesson, StageKind::zero3, {.max_reuse_distance = INT64_MAX}));
  lesson.number("parameter_reuse", run.ranks[0].rest.peak(MemoryUse::parameter), 4 * (W / N + W),
                str("4 x (", with_commas(W), "/N + ", with_commas(W), ")"));
  lesson.number("sent_reuse", sent_for_states(run.ranks[0]), 2 * 4 * (N - 1) * W / N,
                "2 x (N-1)/N x 4 x the model, as stage 2");
}

// [ns] of rank 0's backward passes in three steps under zero2, over a simulated link that takes
// `--latency` for each call.
int64_t backward_time(Lesson& lesson, bool overlap) {
  TrainingSpec spec = spec_of(lesson, StageKind::zero2, {.overlap_comm = overlap});
  spec.ranks = std::min(2, lesson.ranks()), spec.steps = 3, spec.micro_batch = 64;
  int64_t began = 0, total = 0;
  const auto listener = [&](const Event& e) {
    if (e.kind != EventKind::phase) return;
    if (began > 0) total += e.nanoseconds - began;
    began = e.what == std::string("backward") ? e.nanoseconds : 0;
  };
  spec.rank_options.lane = own_lane({.latency = double(lesson.count("--latency")) / 1000});
  train_m(lesson, spec, false, {}, listener);
  return total / spec.steps;
}

// The chapter's formula for T beside a measured time. Times belong to this machine.
void times(Lesson& lesson) {
  const double K = double(1 + lesson.count("--layers")), m = double(lesson.count("--latency"));
  const double off = double(backward_time(lesson, false)) / 1e6,
               on = double(backward_time(lesson, true)) / 1e6, c = std::max(0.0, off / K - m);
  lesson.say(str("\nzero2 on at most 2 ranks, over a simulated link: K = ", K, " buckets, m = ", m,
                 " ms for each"));
  lesson.say(
      cli::format("~ backward without overlap: %.1f ms = K (c + m), so c = %.1f ms", off, c));
  lesson.say(cli::format("~ with overlap: %.1f ms; T = c + (K - 1) max(c, m) + m = %.1f ms", on,
                         c + (K - 1) * std::max(c, m) + m));
}

int main(int argc, char** argv) {
  const About about{.name = "11_overlap",
                    .question = "What is in flight while a rank computes, and what does that cost?",
                    .flags = {{"--layers", "L", "blocks of the model", 4, 2, 12},
                              {"--latency", "MS", "of a call of the simulated link", 2, 1, 100}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    reductions(lesson);
    gathers(lesson);
    times(lesson);
  });
}
