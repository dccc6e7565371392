#include "stages/engine.h"

#include <algorithm>
#include <numeric>

#include "tensor/kernels.h"

namespace zl {
namespace {

// `what`: the beginning of the message.
void require_loss(const Var& loss, const char* what) {
  const Tensor& value = loss.value();
  if (!value.defined()) refuse(what, " no loss");
  if (value.numel() != 1 || value.dtype() != Dtype::f32)
    refuse(what, " ", name(value.dtype()), " values of shape ", to_string(value.shape()),
           ", not a loss: return the mean over the micro-batch, one number in f32, such as "
           "cross_entropy(logits, targets)");
}

}  // namespace

Engine::Engine(std::unique_ptr<Stage> stage) : stage_(std::move(stage)), schedule_(*stage_) {
  if (options().precision == Dtype::f16 || options().loss_scale.static_scale > 0)
    scaler_.emplace(options().loss_scale);
}

Var Engine::forward(const Forward& build) {
  if (!backward_done_) refuse("forward: call backward() before the next forward()");
  if (is_gradient_accumulation_boundary())
    refuse("forward: step() is due after ", micro_batch_, " micro-batches");
  backward_done_ = false;
  stage_->memory().events().set_phase("forward");
  Var loss = build(&tape_, schedule_);
  require_loss(loss, "forward: the function returned");
  if (!loss.needs_gradient() ||
      std::ranges::none_of(stage_->parameters(), &Parameter::requires_grad))
    refuse(
        "forward: there is nothing to train: the loss depends on no parameter, or only on frozen "
        "ones; set requires_grad of those to train");
  return loss;
}

double Engine::evaluate(const Forward& build) {
  stage_->memory().events().set_phase("evaluate");
  const Var loss = build(nullptr, schedule_);
  require_loss(loss, "evaluate: the function returned");
  return kernel::read(loss.value());
}

void Engine::backward(Var& loss) {
  if (backward_done_ || loss.tape() != &tape_)
    refuse("backward: this loss does not come from the last forward()");
  require_loss(loss, "backward: it is called with");
  losses_.push_back(kernel::start_download(loss.value()));
  const Var from = std::exchange(loss, {});
  schedule_.backward(tape_, from, loss_scale(), ++micro_batch_ == options().accumulation);
  backward_done_ = true;
}

std::optional<StepResult> Engine::step() {
  if (!backward_done_) refuse("step: the last micro-batch had no backward()");
  if (!is_gradient_accumulation_boundary()) return std::nullopt;
  const StepResult result = schedule_.measure_gradient(loss_scale());
  gather_losses();
  schedule_.update(result, learning_rate(), loss_scale());
  rank_losses_.start_download();
  if (!result.skipped) ++updates_;
  micro_batch_ = 0;
  if (scaler_) scaler_->update(result.skipped);
  return result;
}

// Called when the host has waited for the norm, so the losses have arrived, and before the updates,
// whose all-gathers may be in flight for long. Each rank contributes its mean; in reproducible mode
// the loss of each micro-batch.
void Engine::gather_losses() {
  std::vector<double> mine;
  for (kernel::Download& loss : losses_) mine.push_back(loss.wait()[0]);
  losses_.clear();
  if (!options().reproducible)
    mine = {std::accumulate(mine.begin(), mine.end(), 0.0) / double(options().accumulation)};
  rank_losses_ = RankNumbers(stage_->comm(), stage_->memory(), mine, {"loss", Purpose::loss});
}

double Engine::loss_of_step() {
  if (!options().reproducible) return rank_losses_.wait_for_sum() / stage_->comm().size();
  const std::vector<double>& losses = rank_losses_.wait();  // by rank, then micro-batch
  if (losses.empty()) return 0;                             // no step yet
  const size_t A = size_t(options().accumulation);
  double sum = 0;
  for (size_t a = 0; a < A; ++a)
    for (size_t i = a; i < losses.size(); i += A) sum += losses[i];
  return sum / double(losses.size());
}

double Engine::learning_rate() const {
  return zl::learning_rate(options().schedule, options().optimizer.lr, updates_);
}

void Engine::require_between_steps(const char* what) const {
  if (!backward_done_ || micro_batch_ != 0)
    refuse(what, ": ", micro_batch_, " of ", options().accumulation,
           " micro-batches are accumulated; call it between two steps");
}

Engine::State Engine::state() const {
  require_between_steps("state");
  State state{.updates = updates_, .scaler = std::nullopt};
  if (scaler_) state.scaler = scaler_->state();
  return state;
}

void Engine::restore(const State& state) {
  require_between_steps("restore");
  if (state.scaler.has_value() != scaler_.has_value())
    refuse("restore: the saved state and this engine must both have a loss scale, or neither");
  updates_ = state.updates;
  if (scaler_) scaler_->restore(*state.scaler);
}

std::unique_ptr<Engine> initialize(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                   const Options& options, Memory* host, Memory* disk) {
  return std::make_unique<Engine>(make_stage(units, comm, {memory, host, disk}, options));
}

}  // namespace zl
