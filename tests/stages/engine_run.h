// The engine on three ranks, step by step, with the odd model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/run_ranks.h"
#include "stages/engine.h"
#include "tests/device.h"
#include "tests/stages/odd_model.h"

namespace zl::test {

// An engine of `options` on one of three ranks, and what it did, in words: Catch2 counts on one
// thread only.
struct EngineRun {
  Engine& engine;
  OddModel& model;
  Communicator& comm;
  Memory& memory;
  std::string did;

  Var forward() {
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
    return engine.forward([&](Tape* tape, UnitObserver& observer) {
      return model.loss(tape, observer, {ids, ids});
    });
  }
  void backward() {
    Var loss = forward();
    engine.backward(loss);
  }
  void note(const auto&... what) { did += str(what..., " "); }
  bool forward_is_refused() {
    try {
      forward();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  }
};

// What `body` noted on each rank.
inline std::vector<std::string> on_three_ranks(const Options& options,
                                               const std::function<void(EngineRun&)>& body) {
  std::vector<std::string> did(3);
  run_ranks(3, [&](Communicator& comm) {
    const RankBackends backends = backends_of_rank();
    Memory memory({}, device_of(backends), comm.events());
    OddModel model(OddModelOptions{});
    const auto engine = initialize(model.units(), comm, memory, options);
    EngineRun run{*engine, model, comm, memory, ""};
    body(run);
    did[size_t(comm.rank())] = run.did;
  });
  return did;
}

inline std::vector<std::string> all_three(const std::string& text) { return {text, text, text}; }

}  // namespace zl::test
