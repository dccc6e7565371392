// Offload: what does each memory hold, and what crosses the link in a step? The library's version
// is the update in optim/flat_optimizer.cpp.
#include <algorithm>

#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

// [B] per element of what a rank keeps in bf16: parameter, gradient, and master weights with two
// moments.
constexpr int64_t kParameter = 2, kGradient = 2, kOptimizer = 12;

struct Place {
  const char *key, *title;
  OffloadDevice optimizer, parameter;
};
constexpr OffloadDevice none = OffloadDevice::none, cpu = OffloadDevice::cpu;
constexpr Place kPlaces[] = {{"none", "all on the device", none, none},
                             {"optimizer", "offload_optimizer: cpu", cpu, none},
                             {"parameters", "offload_param: cpu", none, cpu},
                             {"both", "both: the device keeps no state", cpu, cpu}};

TrainingSpec spec_of(Lesson& lesson, const Place& place) {
  TrainingSpec spec = training_m(lesson, StageKind::zero3);
  spec.engine.precision = Dtype::bf16;
  spec.engine.accumulation = lesson.count("--micro-batches");
  spec.engine.offload_optimizer = place.optimizer, spec.engine.offload_param = place.parameter;
  return spec;
}

// One step, and its bytes beside the formulas. W: elements of all units, padded.
RunM measure(Lesson& lesson, const Place& place) {
  const int64_t N = lesson.ranks(), A = lesson.count("--micro-batches");
  const SizesM sizes = sizes_m(int(N));
  const int64_t W = sizes.padded(), root = sizes.padded_root, block = sizes.padded_block;
  const bool optimizer = place.optimizer == cpu, parameter = place.parameter == cpu;
  const RunM run = train_m(lesson, spec_of(lesson, place), optimizer && parameter);
  const RankReport& rank = run.ranks[0];
  const auto number = [&](const char* what, int64_t measured, int64_t expected,
                          const std::string& formula) {
    lesson.number(str(place.key, "_", what), measured, expected, formula);
  };
  lesson.say(str("\n", place.title));
  const int64_t device = (parameter ? 0 : kParameter) + (optimizer ? 0 : kGradient + kOptimizer);
  number("device", rank.rest.live_total(), device * W / N, str(device, " W/N, between steps"));
  number("parameter_peak", rank.rest.peak(MemoryUse::parameter),
         kParameter * ((parameter ? 0 : W / N) + root + block),
         parameter ? "2 x (root + block)" : "2 x (W/N + root + block)");
  number("host", rank.host.live_total(), (16 - device) * W / N, str(16 - device, " W/N"));
  // Before each gather its shard goes to the device: all in forward, the blocks again in backward.
  const int64_t down = parameter   ? A * kParameter * (2 * W - root) / N
                       : optimizer ? kParameter * W / N
                                   : 0,
                up = optimizer   ? A * kGradient * W / N
                     : parameter ? kParameter * W / N
                                 : 0;
  number("to_device", rank.moves.of(Move::host_to_device).bytes, down,
         parameter   ? "A x 2 (2W - root)/N: shards, before each gather"
         : optimizer ? "2 W/N: updated parameters"
                     : "nothing moves");
  number("to_host", rank.moves.of(Move::device_to_host).bytes, up,
         optimizer   ? "A x 2 W/N: reduced gradients"
         : parameter ? "2 W/N: updated parameters"
                     : "nothing moves");
  return run;
}

int main(int argc, char** argv) {
  const About about{.name = "10_offload",
                    .question = "What does each memory hold, and what crosses the link in a step?",
                    .flags = {{"--micro-batches", "A", "of one step", 1, 1, 8}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    lesson.say("zero3 in bf16, in bytes of one rank; W = " +
               with_commas(sizes_m(lesson.ranks()).padded()) + " elements");
    std::vector<RunM> runs;
    for (const Place& place : kPlaces) runs.push_back(measure(lesson, place));
    lesson.check(
        "all weights have the same bits in the four runs",
        std::ranges::all_of(runs, [&](const RunM& run) { return run.weights == runs[0].weights; }));
  });
}
