// The program that tests/tutorials/gdb_test.cpp inspects with gdb, as the guide to gdb does. Always
// built with symbols. With an argument it makes the two steps of which internals.md follows one.
#include "dist/run_ranks.h"
#include "nn/gpt.h"
#include "stages/engine.h"
#include "tensor/kernels.h"

using namespace zl;

[[gnu::noinline]] void look(const Communicator& comm, const Tensor& half, const Tensor& gone,
                            const Parameter& parameter) {
  asm volatile("" : : "r"(&comm), "r"(&half), "r"(&gone), "r"(&parameter));
}

[[gnu::noinline]] void second_step() { asm volatile(""); }

void train(Communicator& comm) {
  Memory memory({DeviceKind::cpu}, reference_backend(), comm.events());
  Gpt model({.layers = 1, .heads = 2, .width = 32, .block_size = 32});
  const auto engine = initialize(model.units(), comm, memory, {.stage = StageKind::zero2});
  const Tensor tokens = Tensor::zeros(memory, MemoryUse::activation, {4, 32}, Dtype::i32);
  for (int step = 1; step <= 2; ++step) {
    if (step == 2) second_step();
    Var loss = engine->forward([&](Tape* tape, UnitObserver& observer) {
      return model.loss(tape, observer, {tokens, tokens});
    });
    engine->backward(loss);
    engine->step();
    (void)engine->loss_of_step();
  }
}

int main(int argc, char**) {
  if (argc > 1) return run_ranks(1, train), 0;
  run_ranks(3, [](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    Memory nowhere({DeviceKind::meta}, meta_backend(), comm.events());
    const Tensor half = Tensor::empty(memory, MemoryUse::gradient, {2, 6}, Dtype::bf16);
    kernel::fill(0.5 + comm.rank(), half);
    Parameter parameter{.name = "h.0.ln_1.weight", .shape = {3}};
    parameter.data = Tensor::zeros(memory, MemoryUse::parameter, {3});
    parameter.data.data<float>()[1] = 0.25f;
    parameter.grad = Tensor::empty(nowhere, MemoryUse::gradient, {3});
    comm.barrier({"named", Purpose::check}).wait();  // from here on every rank has its name
    look(comm, half, {}, parameter);
    comm.barrier({"look", Purpose::check}).wait();
  });
}
