// Which stage fits a machine, and which is the fastest there? The planner's clock on a machine with
// round numbers, and then on machines that exist.
#include "stages/predict/clock/clock_plan.h"
#include "stages/predict/closed_form.h"
#include "stages/predict/dry_run.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

namespace {
constexpr double kBus = 10e9;  // [B/s] of the machine with round numbers

// GPT-2 with 124 million parameters in bf16: 16 bytes for each.
GptTrainingSpec gpt2(StageKind stage, int ranks, int64_t accumulation = 1) {
  GptTrainingSpec spec = gpt_spec(named_gpt("gpt2"));
  spec.micro_batch = 1;
  spec.engine.stage = stage;
  spec.engine.precision = Dtype::bf16;
  spec.engine.accumulation = accumulation;
  spec.ranks = ranks;
  spec.device = DeviceKind::cuda;
  return spec;
}

// Calls have no latency here: S bytes take S (N - 1) / N / bus, an all-reduce twice that.
Machine round_machine(int ranks) {
  Machine m = find_machine("a100-80gb");
  m.ranks_per_node = ranks;
  m.rank.launch = 0, m.contention = 1, m.collectives.clear();
  for (const Collective c :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
    m.collectives.push_back({.collective = c, .ranks = ranks, .nodes = 1, .terms = {0, 0, kBus}});
  return m;
}

struct Sizes {
  double padded = 0, root = 0;  // [n]
};
Sizes sizes_of(int ranks) {
  const GptTrainingSpec spec = gpt2(StageKind::ddp, ranks);
  const std::vector<int64_t> units = padded_unit_sizes(spec.new_model()->units(), ranks);
  Sizes sizes{.root = double(units[0])};
  for (const int64_t n : units) sizes.padded += double(n);
  return sizes;
}

// The least power of two that `fits`, up to 4,096; 0: there is none.
int64_t least_ranks(const std::function<bool(int)>& fits) {
  for (int ranks = 1; ranks <= 4096; ranks *= 2)
    if (fits(ranks)) return ranks;
  return 0;
}

void what_fits(Lesson& lesson) {
  const int64_t mib = lesson.count("--memory"), limit = mib << 20;
  lesson.say(str("the least power of two of ranks whose model states fit ", mib, " MiB"));
  // [B] per parameter that are replicated, and that are divided by N.
  const std::pair<double, double> bytes[] = {{16, 0}, {4, 12}, {2, 14}, {0, 16}};
  for (size_t i = 0; i < 4; ++i) {
    const auto [all, shared] = bytes[i];
    const int64_t measured = least_ranks(
        [&](int N) { return dry_run(gpt2(kStages[i], N), 0).rest.live_total() <= limit; });
    lesson.number(str(name(kStages[i]), "_ranks"), measured,
                  least_ranks([&, all = all, shared = shared](int N) {
                    return sizes_of(N).padded * (all + shared / N) <= double(limit);
                  }),
                  str(measured == 0 ? "no N up to 4,096 has" : "least N with", " Psi (", int(all),
                      " + ", int(shared), " / N) B in ", mib, " MiB"));
  }
}

void what_calls_take(Lesson& lesson) {
  const int N = lesson.ranks();
  const Sizes n = sizes_of(N);
  const double unit = 2 * double(N - 1) / N / kBus * 1e3;  // [ms] of one element in bf16
  lesson.say("\nms of calls in a step, on links of 10 GB/s without latency");
  const auto calls = [&](StageKind stage, int64_t A) {
    return 1e3 * clock_step(gpt2(stage, N, A), round_machine(N)).times.communication;
  };
  const double near = 1e-3 + 1e-4 * unit * n.padded;  // the norm and the loss are gathered too
  for (const StageKind stage : {StageKind::ddp, StageKind::zero1, StageKind::zero2})
    lesson.number(str(name(stage), "_ms"), calls(stage, 1), 2 * n.padded * unit, near,
                  "2 Psi x 2 B x (N - 1) / N / 10 GB/s");
  lesson.number("zero3_ms", calls(StageKind::zero3, 1), (3 * n.padded - n.root) * unit, near,
                "(3 Psi - root) x 2 B x (N - 1) / N / 10 GB/s");
  lesson.number("zero1_4_ms", calls(StageKind::zero1, 4), 2 * n.padded * unit, near,
                "4 micro-batches: as with one");
  lesson.number("zero2_4_ms", calls(StageKind::zero2, 4), 5 * n.padded * unit, near,
                "4 micro-batches: 4 reductions and a gather, 5 Psi");
}

// On a machine that exists: nodes of 8 with four ports of 100 Gb/s.
void what_scales(Lesson& lesson) {
  const Machine machine = find_machine("a100-80gb-4x100g");
  lesson.say("\nwith overlap, by the clock, on " + machine.title);
  const auto seconds = [&](StageKind stage, int ranks) {
    GptTrainingSpec spec = gpt2(stage, ranks);
    spec.engine.ranks_per_node = machine.ranks_per_node;
    set_overlap(spec.engine, true);
    return clock_step(spec, machine).times.seconds;
  };
  bool shorter = true;
  for (const int ranks : {16, 32, 64}) {
    const double sharded = seconds(StageKind::zero3, ranks),
                 zero1 = seconds(StageKind::zero1, ranks);
    const double error = expected_step_error(machine_data(machine), ranks).error;
    shorter &= (1 + error) * zero1 < sharded;
    lesson.say(cli::format("~ %d ranks: zero1 %.1f ms, zero3 %.1f ms, with an error of %.0f %%",
                           ranks, 1e3 * zero1, 1e3 * sharded, 100 * error));
  }
  lesson.check("zero1's step is shorter than zero3's by more than the error", shorter);
  train_m(lesson, training_m(lesson, StageKind::zero1), true);  // for --step
}

}  // namespace

int main(int argc, char** argv) {
  const About about{
      .name = "15_decision",
      .question = "Which stage fits your machine, and which is the fastest there?",
      .flags = {{"--memory", "MIB", "of a rank, for model states", 1024, 1, 1 << 20}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    what_fits(lesson);
    what_calls_take(lesson);
    what_scales(lesson);
  });
}
