// The interface that DeepSpeed users know: initialize, then forward, backward, step for each
// micro-batch.
//
//   auto engine = zl::initialize(model.units(), comm, memory, options);
//   for (…) {
//     Var loss = engine->forward([&](Tape* tape, UnitObserver& observer) {
//       return model.loss(tape, observer, batch);
//     });
//     engine->backward(loss);
//     engine->step();   // updates after the last of A micro-batches; otherwise does nothing
//   }
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "stages/options.h"
#include "stages/schedule/step_schedule.h"
#include "stages/stage.h"

namespace zl {

// A call out of order throws std::invalid_argument and changes nothing. After any other exception
// of forward, backward or step, also one that the model throws, only destroy the engine.
class Engine {
 public:
  // Builds a scalar loss. `tape` is null when nothing is to be recorded.
  using Forward = std::function<Var(Tape* tape, UnitObserver& observer)>;

  // Of a stage that holds the model; its options hold for the engine too.
  explicit Engine(std::unique_ptr<Stage> stage);

  // One forward pass of one micro-batch, recorded. Throws std::invalid_argument if the one before
  // it had no backward(), if step() is due, or if the result is no loss that trains a parameter.
  Var forward(const Forward& build);
  // A forward pass without a tape. Returns the loss of this rank; the host waits for it.
  double evaluate(const Forward& build);
  // Drops `loss`, so that activations are freed as the backward pass goes on.
  void backward(Var& loss);
  // After the last micro-batch: the optimizer step. Before that: nothing. Throws
  // LossScaleExhausted.
  std::optional<StepResult> step();

  double learning_rate() const;                                         // of the next update
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }  // of the next backward
  // The mean loss over the ranks and micro-batches of the last step; waits until it has arrived.
  double loss_of_step();
  int64_t updates() const { return updates_; }  // skipped steps do not count
  // Whether the next step() updates: true after the last backward of a step, as DeepSpeed's
  // function of this name.
  bool is_gradient_accumulation_boundary() const { return micro_batch_ == options().accumulation; }

  Stage& stage() { return *stage_; }
  UnitObserver& observer() { return schedule_; }  // for passes that the engine does not run
  const Options& options() const { return stage_->options(); }

  // What a checkpoint keeps beside weights and optimizer state. Throws std::invalid_argument
  // inside a step: gradients of some micro-batches are in no checkpoint.
  struct State {
    int64_t updates = 0;
    std::optional<LossScaler::State> scaler;  // where there is a loss scale
  };
  State state() const;
  void restore(const State& state);

 private:
  void require_between_steps(const char* what) const;
  void gather_losses();

  const std::unique_ptr<Stage> stage_;
  StepSchedule schedule_;
  std::optional<LossScaler> scaler_;  // f16, or another type with a static scale
  Tape tape_;  // one for all micro-batches: it keeps the room it has grown to
  int64_t micro_batch_ = 0, updates_ = 0;
  bool backward_done_ = true;             // of the last forward
  std::vector<kernel::Download> losses_;  // of this step's micro-batches
  RankNumbers rank_losses_;               // of the last step; see gather_losses()
};

// Allocates parameters, gradients and optimizer state as options.stage says. `host`: memory for
// options.offload_optimizer and offload_param, which ddp ignores, and for cpu_checkpointing; not
// needed without them. `disk`: a Memory of Pool::disk for nvme, on
// make_disk_backend(options.nvme_path). Both must outlive the engine and every recorded tape.
// Throws OutOfMemory, OutputError if the disk has no room, and InputError if the options contradict
// each other.
std::unique_ptr<Engine> initialize(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                   const Options& options, Memory* host = nullptr,
                                   Memory* disk = nullptr);

}  // namespace zl
