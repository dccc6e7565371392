// Your own model under every stage: an MLP learns the parity of 4 bits. Run it as
// ./build/default/tutorials/own_model.
#include <cstdio>
#include <deque>

#include "autograd/ops.h"
#include "dist/run_ranks.h"
#include "stages/engine.h"
#include "tensor/kernels.h"

using namespace zl;

// A model is its units, and a loss that runs each between its marks. `hidden` runs twice; `spare`
// is never used.
struct Mlp {
  std::deque<Parameter> own{{"embed", {2, 8}, 0, 0.5},
                            {"in", {32, 16}, 0, 0.3},
                            {"in_bias", {16}},
                            {"spare", {3}},
                            {"hidden", {16, 16}, 0, 0.3},
                            {"hidden_bias", {16}},
                            {"out", {16, 2}, 0, 0.3},
                            {"out_bias", {2}}};
  std::vector<Unit> units{{"root", {&own[0], &own[1], &own[2], &own[3], &own[6], &own[7]}, 0},
                          {"hidden", {&own[4], &own[5]}, 1}};

  Var loss(Tape* tape, UnitObserver& stage, const Tensor& bits,
           const Tensor& parity) {  // (B, 4), (B)
    const auto p = [&](int i) { return Var::parameter(tape, own[size_t(i)]); };
    return run_unit(tape, stage, units[0], [&] {
      const Var e = embedding(bits, p(0));  // (B, 4, 8)
      Var x = gelu(linear(reshape(e, {bits.dim(0), 32}), p(1), p(2)));
      for (int twice = 0; twice < 2; ++twice)
        x = run_unit(tape, stage, units[1], [&] { return add(x, gelu(linear(x, p(4), p(5)))); });
      return cross_entropy(linear(x, p(6), p(7)), parity);
    });
  }
};

int main() {
  Config config;  // what DeepSpeed reads from its JSON file
  config.micro_batch = 8;
  config.optimizer.lr = 0.01;
  for (const StageKind stage : kStages) {
    config.stage = stage;
    run_ranks(2, [&](Communicator& comm) {
      Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
      Mlp model;
      const auto engine =
          initialize(model.units, comm, memory, config);  // deepspeed.initialize(model=model, …)
      for (int step = 0; step < 150; ++step) {
        const Tensor bits = Tensor::empty(memory, MemoryUse::activation, {8, 4}, Dtype::i32);
        const Tensor parity = Tensor::empty(memory, MemoryUse::activation, {8}, Dtype::i32);
        for (int b = 0; b < 8; ++b) {  // each rank has its own half of the 16 cases
          const int number = 8 * comm.rank() + b;
          for (int i = 0; i < 4; ++i) bits.data<int32_t>()[size_t(4 * b + i)] = number >> i & 1;
          parity.data<int32_t>()[size_t(b)] = __builtin_popcount(unsigned(number)) % 2;
        }
        Var loss = engine->forward(
            [&](Tape* tape, UnitObserver& s) { return model.loss(tape, s, bits, parity); });
        engine->backward(loss);  // model_engine.backward(loss)
        engine->step();          // model_engine.step()
      }
      if (comm.rank() == 0)
        std::printf("%-6s loss %.9f, optimizer state %4lld bytes per rank\n", name(stage),
                    engine->loss_of_step(),
                    (long long)memory.ledger().live(MemoryUse::optimizer_state));
    });
  }
}
