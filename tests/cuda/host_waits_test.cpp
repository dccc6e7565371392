// The host waits for the GPU once per optimizer step: for the norm, which decides the update.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "dist/run_ranks.h"
#include "stages/engine.h"
#include "tensor/kernels.h"
#include "tests/device.h"
#include "tests/stages/odd_model.h"

using namespace zl;
using namespace zl::test;

namespace {

Tensor tokens(Memory& memory) {
  const Tensor t = Tensor::empty(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
  kernel::upload<int32_t>(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, t);
  return t;
}

}  // namespace

TEST_CASE("a step of several micro-batches waits for the GPU once, in every stage", "[cuda]") {
  require_gpu();
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype precision = GENERATE(Dtype::f32, Dtype::f16);
  CAPTURE(name(stage), name(precision));
  int64_t waits = -1, with_loss = -1;
  run_ranks(1, [&](Communicator& comm) {
    const auto gpu = gpu_of_rank(0);
    Memory memory({DeviceKind::cuda}, *gpu, comm.events());
    OddModel model(OddModelOptions{});
    const auto engine = initialize(model.units(), comm, memory,
                                   {.stage = stage,
                                    .accumulation = 2,
                                    .gradient_clipping = 1,
                                    .precision = precision,
                                    .loss_scale = {.initial_scale_power = 4}});
    const auto step = [&] {
      for (int a = 0; a < 2; ++a) {
        const Batch batch{tokens(memory), tokens(memory)};
        Var loss = engine->forward(
            [&](Tape* tape, UnitObserver& observer) { return model.loss(tape, observer, batch); });
        engine->backward(loss);
        engine->step();
      }
    };
    step();
    (void)engine->loss_of_step();
    const int64_t before = gpu->host_waits();
    step();
    waits = gpu->host_waits() - before;
    (void)engine->loss_of_step();
    with_loss = gpu->host_waits() - before;
  });
  CHECK(waits <= 1);  // 0: the norm had arrived before it was asked for
  CHECK(with_loss <= 2);
}

TEST_CASE("a download that was started arrives in order, while later work is under way", "[cuda]") {
  require_gpu();
  const auto gpu = gpu_of_rank(0);
  EventStream events;
  Memory memory({DeviceKind::cuda}, *gpu, events);
  const Tensor t = Tensor::zeros(memory, MemoryUse::workspace, {3}, Dtype::f64);
  std::vector<kernel::Download> started;
  for (int i = 0; i < 5; ++i) {
    kernel::fill(i, t);
    started.push_back(kernel::start_download(t));
  }
  const int64_t before = gpu->host_waits();
  CHECK(started[4].wait() == std::vector<double>{4, 4, 4});
  const int64_t after = gpu->host_waits();
  CHECK(after <= before + 1);
  for (int i = 0; i < 4; ++i) CHECK(started[size_t(i)].wait() == std::vector<double>(3, i));
  CHECK(gpu->host_waits() == after);  // those were there already
}
