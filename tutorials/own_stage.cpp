// Your own stage: zero3 that does not reshard between forward and backward, as FSDP's
// reshard_after_forward=False. It is compared with the paper's stages, and its bytes and traffic
// are predicted from what ZL_STAGE declares: tutorials/reference/variants.md. Run it as
// ./build/default/tutorials/own_stage.
#include <cstdio>
#include <string_view>

#include "nn/data/corpus.h"
#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

bool mistake = false;  // with --mistake the stage is wrong, so that you see the diagnosis

// stages/zero3.cpp but for unshard() and reshard().
class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    if (mistake) kernel::fill(0, u.gradient_shard);  // loses the micro-batches before this one
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // A unit that still has a backward pass before it keeps its full parameters.
  Work unshard(UnitState& u) override {
    if (u.full_parameter.defined()) return {};
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override {
    if (u.forward_passes == 0) u.full_parameter = {};
  }
};

}  // namespace

// Unlike zero3, it makes no all-gather for backward.
ZL_STAGE(zero3_kept, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward}},
         .parent = "zero3", .sentence = "keeps full parameters between forward and backward")
ZL_REGISTER(zero3_kept)

}  // namespace zl

using namespace zl;

// [B] of rank 0 in the device pool.
struct Bytes {
  int64_t measured = 0, predicted = 0;
};
Bytes peak_of(const StageOutcome& s, MemoryUse use) {
  for (const MemoryRow& row : s.memory)
    if (row.rank == 0 && row.pool == Pool::device && row.use == use)
      return {row.peak, row.predicted_peak};
  return {};
}
Bytes sent(const StageOutcome& s) {
  Bytes all;
  for (const TrafficRow& row : s.traffic)
    all.measured += row.sent, all.predicted += row.predicted_sent;
  return all;
}

int main(int argc, char** argv) try {
  mistake = argc == 2 && std::string_view(argv[1]) == "--mistake";
  if (argc > 1 && !mistake) {
    std::fprintf(stderr, "own_stage: there is no argument '%s'; there is --mistake\n", argv[1]);
    return 2;
  }
  GptTrainingSpec spec = gpt_spec({.layers = 3, .heads = 2, .width = 32, .block_size = 32});
  const Windows text(TokenData::of_text("corpus", std::string(default_corpus())), spec.window);
  spec.data = &text;
  spec.engine.accumulation = 2;
  spec.steps = 5;
  spec.ranks = 3;
  const StageKind own("zero3_kept");
  const Comparison comparison = compare_stages(spec, {StageKind::zero2, StageKind::zero3, own});
  std::printf("5 steps of a GPT with %lld parameters, 3 ranks, 2 micro-batches per step\n\n",
              (long long)comparison.parameters);
  std::printf("%-11s %-15s %27s %27s\n", "stage", "bits", "peak of parameters [B]", "sent [B]");
  for (const StageOutcome& s : comparison.stages) {
    const Bytes parameters = peak_of(s, MemoryUse::parameter), traffic = sent(s);
    std::printf("%-11s %-15s %9lld, predicted %6lld %9lld, predicted %6lld\n", name(s.stage),
                s.bitwise_equal ? "as promised" : "DIFFERENT", (long long)parameters.measured,
                (long long)parameters.predicted, (long long)traffic.measured,
                (long long)traffic.predicted);
    if (s.diagnosis.found())
      std::printf("  %s\n  %s\n", s.diagnosis.meaning.c_str(), s.diagnosis.evidence.c_str());
  }
  std::puts(comparison.ok() ? "\nAll promises hold." : "\nA promise is broken: see above.");
  if (std::fflush(stdout) == 0) return comparison.ok() ? 0 : 1;
  std::perror("own_stage: stdout");
  return 74;
} catch (const std::exception& e) {
  std::fprintf(stderr, "own_stage: %s\n%s", e.what(), last_failure_report().c_str());
  return 1;
}
