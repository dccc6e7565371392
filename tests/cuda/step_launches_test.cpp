// The counts of launches and reads that tutorials/reference/gpu.md states for a step of GPT-2. They
// depend on the number of blocks, but not on sizes.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "dist/run_ranks.h"
#include "nn/gpt.h"
#include "stages/engine.h"
#include "tensor/kernels.h"
#include "tests/cuda/on_cpu/launches.h"
#include "tests/device.h"

using namespace zl;
using namespace zl::test;

namespace {

struct StepCounts {
  std::map<std::string, int64_t> calls, launches;  // by kernel function
  int64_t all = 0;                                 // launches, products included
  int64_t reads = 0;                               // by the host
};

// The second step: one micro-batch, ddp, one rank.
StepCounts counts_of_step(int64_t layers, Recompute recompute) {
  StepCounts counts;
  run_ranks(1, [&](Communicator& comm) {
    const auto gpu = gpu_of_rank(0);
    Memory memory({DeviceKind::cuda}, *gpu, comm.events());
    Gpt model({.layers = layers, .heads = 2, .width = 16, .block_size = 3, .vocab = 11}, recompute);
    const auto engine =
        initialize(model.units(), comm, memory,
                   {.stage = StageKind::ddp, .gradient_clipping = 1, .precision = Dtype::bf16});
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
    const auto step = [&] {
      Var loss = engine->forward([&](Tape* tape, UnitObserver& observer) {
        return model.loss(tape, observer, {ids, ids});
      });
      engine->backward(loss);
      engine->step();
    };
    step();
    (void)engine->loss_of_step();
    std::string kernel = "none";
    int64_t before = cuda_on_cpu::launches.kernels;
    const auto attribute = [&] {
      counts.launches[kernel] += cuda_on_cpu::launches.kernels - before;
      before = cuda_on_cpu::launches.kernels;
    };
    comm.events().listen([&](const Event& event) {
      if (event.kind != EventKind::kernel) return;
      attribute();
      kernel = event.what;
      ++counts.calls[kernel];
    });
    const int64_t launched = before, waits = gpu->host_waits();
    step();
    (void)engine->loss_of_step();
    attribute();
    counts.reads = gpu->host_waits() - waits;
    counts.all = cuda_on_cpu::launches.kernels - launched + counts.calls["matmul"];
  });
  return counts;
}

}  // namespace

TEST_CASE("dump", "[cuda][host]") {
  for (const auto r : {Recompute::selective, Recompute::none}) {
    const StepCounts c = counts_of_step(12, r);
    std::string text;
    for (const auto& [k, n] : c.launches)
      text += k + " " + std::to_string(n) + " calls " +
              std::to_string(c.calls.count(k) ? c.calls.at(k) : 0) + "\n";
    WARN(text << "all " << c.all << " reads " << c.reads);
  }
}
