#include "stages/engine.h"

#include "tensor/kernels.h"

namespace zl {

Engine::Engine(std::vector<Unit>& units, Communicator& comm, Memory& memory, const Config& config,
               Memory* host)
    : config_(config), memory_(memory) {
  require_input(config.micro_batch > 0 && config.accumulation > 0,
                "a step needs at least one micro-batch of one window; got micro-batch ",
                config.micro_batch, " and ", config.accumulation, " accumulation steps");
  require_input(is_float(config.precision), "parameters of ", name(config.precision),
                " cannot be trained");
  const Dtype added = config.grad_accum_dtype.value_or(config.precision);
  require_input(added == config.precision || added == Dtype::f32, "gradients of parameters of ",
                name(config.precision), " are added in that type or in f32, not in ", name(added));
  const StageKind kind = config.stage.value_or(StageKind::ddp);
  const bool offload = config.offload_optimizer && kind != StageKind::ddp;
  require_input(!offload || host != nullptr,
                "offload_optimizer needs a memory of the host's: hand one to initialize()");
  if (config.precision == Dtype::f16) scaler_.emplace(config.loss_scale);
  stage_ =
      make_stage(kind, units, comm, memory,
                 {.optimizer = config.optimizer,
                  .dtype = config.precision,
                  .gradient_dtype = config.grad_accum_dtype,
                  .communication_dtype = config.communication_data_type,
                  .skip_nonfinite = config.check_grad_overflow || config.precision != Dtype::bf16,
                  .seed = config.seed,
                  .reduce_bucket_size = config.reduce_bucket_size,
                  .allgather_bucket_size = config.allgather_bucket_size,
                  .host = offload ? host : nullptr});
}

Var Engine::forward(const Forward& build) {
  require(walked_, "forward: the previous micro-batch has had no backward");
  require(!is_gradient_accumulation_boundary(), "forward: step() is due after ", micro_batch_,
          " micro-batches");
  walked_ = false;
  memory_.events().set_phase("forward");
  return build(&tape_, *stage_);
}

double Engine::evaluate(const Forward& build) {
  memory_.events().set_phase("evaluate");
  return kernel::read(build(nullptr, *stage_).value(), 0);
}

void Engine::backward(Var& loss) {
  require(!walked_ && loss.tape() == &tape_,
          "backward: this loss does not come from the last forward");
  loss_sum_ += kernel::read(loss.value(), 0);  // a dry run's loss is 0
  const Var root = std::exchange(loss, {});
  stage_->backward(tape_, root, loss_scale(), micro_batch_ + 1 == config_.accumulation);
  walked_ = true;
  ++micro_batch_;
}

std::optional<StepResult> Engine::step() {
  require(walked_, "step: the last micro-batch has had no backward");
  if (!is_gradient_accumulation_boundary()) return std::nullopt;
  const StepResult result = stage_->step({.lr = learning_rate(),
                                          .max_norm = config_.gradient_clipping,
                                          .scale = loss_scale(),
                                          .micro_batches = int(config_.accumulation)});
  loss_ = stage_->mean_over_ranks(loss_sum_ / double(config_.accumulation));
  if (!result.skipped) ++updates_;
  micro_batch_ = 0;
  loss_sum_ = 0;
  if (scaler_) scaler_->update(result.skipped);
  return result;
}

double Engine::learning_rate() const {
  return zl::learning_rate(config_.schedule, config_.optimizer.lr, updates_);
}

std::unique_ptr<Engine> initialize(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                   const Config& config, Memory* host) {
  return std::make_unique<Engine>(units, comm, memory, config, host);
}

}  // namespace zl
