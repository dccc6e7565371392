// Your own training loop: initialize, then forward, backward and step by hand. A small GPT learns
// text under each of the four stages, on three ranks that are threads. It links the core alone
// (zerolab_core), so its kernels are those of the reference. Run it as
// ./build/default/tutorials/own_loop.
#include <cstdio>
#include <string_view>

#include "dist/run_ranks.h"
#include "nn/gpt.h"
#include "stages/engine.h"
#include "tensor/kernels.h"

using namespace zl;

namespace {

constexpr int kRanks = 3;
constexpr int64_t kSteps = 20, kMicroBatches = 2, kRows = 4, kTokens = 32;

// The text that is learned, again and again. Its bytes are the tokens.
constexpr std::string_view kText =
    "ZeRO shards the optimizer state, then the gradients, then the parameters. ";

// Rows number `first` and on; each target is the token that follows.
Batch read_rows(Memory& memory, int64_t first) {
  const auto tokens = [&](int64_t from) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < kRows * kTokens; ++i)
      values.push_back(kText[size_t(first * kTokens + from + i) % kText.size()]);
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, {kRows, kTokens}, Dtype::i32);
    kernel::upload<int32_t>(values, t);
    return t;
  };
  return {.inputs = tokens(0), .targets = tokens(1)};
}

struct Trained {
  std::vector<double> losses;  // the mean loss of each step: one number, which every rank learns
  int64_t kept = 0;            // [B] of this rank between steps
};

// What one rank does. Every rank makes the same calls in the same order, on different rows.
Trained train(Communicator& comm, StageKind stage) {
  Memory memory({DeviceKind::cpu}, reference_backend(), comm.events());
  Gpt model({.layers = 2, .heads = 2, .width = 32, .block_size = kTokens});
  Options options;
  options.stage = stage;
  options.accumulation = kMicroBatches;
  options.reproducible = true;  // with several micro-batches per step, for one result in all stages
  const auto engine = initialize(model.units(), comm, memory, options);

  Trained trained;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t a = 0; a < kMicroBatches; ++a) {
      const int64_t micro_batch = (step * kMicroBatches + a) * kRanks + comm.rank();
      const Batch batch = read_rows(memory, micro_batch * kRows);
      Var loss = engine->forward(
          [&](Tape* tape, UnitObserver& observer) { return model.loss(tape, observer, batch); });
      engine->backward(loss);  // adds to the gradients; zero2 and zero3 keep their shard only
      engine->step();          // updates after the last micro-batch; before it, does nothing
    }
    trained.losses.push_back(engine->loss_of_step());
  }
  for (const MemoryUse use :
       {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state})
    trained.kept += memory.ledger().live(use);
  return trained;
}

}  // namespace

int main() try {
  std::vector<double> of_ddp;
  bool same = true;
  for (const StageKind stage : kStages) {
    Trained rank0;
    run_ranks(kRanks, [&](Communicator& comm) {
      Trained mine = train(comm, stage);
      if (comm.rank() == 0) rank0 = std::move(mine);
    });
    if (stage == StageKind::ddp) of_ddp = rank0.losses;
    same = same && rank0.losses == of_ddp;
    std::printf("%-5s  loss %.6f at step 1, %.6f at step %lld; rank 0 keeps %lld B\n", name(stage),
                rank0.losses.front(), rank0.losses.back(), (long long)kSteps,
                (long long)rank0.kept);
  }
  std::puts(same ? "all stages have the same losses" : "STAGES DIFFER");
  if (std::fflush(stdout) == 0) return same ? 0 : 1;
  std::perror("own_loop: stdout");
  return 74;
} catch (const std::exception& e) {
  std::fprintf(stderr, "own_loop: %s\n%s", e.what(), last_failure_report().c_str());
  return 1;
}
