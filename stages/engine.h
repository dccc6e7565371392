// The face that DeepSpeed users know: initialize, then forward, backward, step for each
// micro-batch.
//
//   auto engine = zl::initialize(model.units(), comm, memory, config);
//   for (…) {
//     Var loss = engine->forward([&](Tape* tape, UnitObserver& stage) { return model.loss(tape,
//     stage, ids, targets); }); engine->backward(loss); engine->step();   // updates at the last of
//     gradient_accumulation_steps micro-batches, else does nothing
//   }
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "stages/deepspeed/config.h"
#include "stages/stage.h"

namespace zl {

// After an exception of forward, backward or step that is not std::invalid_argument it may only be
// destroyed.
class Engine {
 public:
  // Builds a scalar loss. `tape` is null when nothing is to be recorded.
  using Forward = std::function<Var(Tape* tape, UnitObserver& stage)>;

  // `host`: where config.offload_optimizer sends the optimizer; it may be null if that is false or
  // the stage is ddp.
  Engine(std::vector<Unit>& units, Communicator& comm, Memory& memory, const Config& config,
         Memory* host = nullptr);

  // One forward pass of one micro-batch, recorded. Throws std::invalid_argument if the previous one
  // was not walked back, or if its step() is due.
  Var forward(const Forward& build);
  // A forward pass without a tape. Returns the loss of this rank.
  double evaluate(const Forward& build);
  // Drops `loss`: its activations die as the walk passes them.
  void backward(Var& loss);
  // At an accumulation boundary: the optimizer step. Otherwise nothing. Throws LossScaleExhausted.
  std::optional<StepResult> step();

  double learning_rate() const;                                         // of the next update
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }  // of the next backward
  double loss_of_step() const {
    return loss_;
  }  // mean over ranks and micro-batches of the last step
  int64_t updates() const { return updates_; }  // skipped steps do not count
  // Whether the next step() updates: true after the last backward of a step, as DeepSpeed's
  // function of this name.
  bool is_gradient_accumulation_boundary() const { return micro_batch_ == config_.accumulation; }
  Stage& stage() { return *stage_; }

 private:
  Config config_;
  Memory& memory_;
  std::unique_ptr<Stage> stage_;
  std::optional<LossScaler> scaler_;  // in fp16
  Tape tape_;  // one for all micro-batches: empty between them, with the room that it has grown to
  int64_t micro_batch_ = 0, updates_ = 0;
  double loss_sum_ = 0, loss_ = 0;
  bool walked_ = true;
};

// Places the model's parameters, gradients and optimizer state as config.stage says (ddp if it says
// nothing). Throws OutOfMemory.
std::unique_ptr<Engine> initialize(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                   const Config& config, Memory* host = nullptr);

}  // namespace zl
