#include "stages/engine.h"

#include <algorithm>
#include <numeric>

#include "tensor/kernels.h"

namespace zl {
namespace {

void require_loss(const Var& loss, const char* from) {
  const Tensor& value = loss.value();
  require(value.defined(), from, ": the function returned no loss");
  require(value.numel() == 1 && value.dtype() == Dtype::f32, from, ": the function returned ",
          name(value.dtype()), " values of shape ", in_words(value.shape()),
          ", not a loss: return the mean over the micro-batch, one number in f32, such as "
          "cross_entropy(logits, targets)");
}

}  // namespace

bool needs_disk(const EngineOptions& o) {
  return (o.offload_optimizer == OffloadDevice::nvme && shards_optimizer(o.stage)) ||
         (o.offload_param == OffloadDevice::nvme && shards_parameter(o.stage));
}

StageOptions stage_options(const EngineOptions& o, Memory* host, Memory* disk) {
  const Dtype accumulated = o.grad_accum_dtype.value_or(o.precision);
  require_input(is_float(o.precision), "parameters of ", name(o.precision), " cannot be trained");
  require_input(accumulated == o.precision || accumulated == Dtype::f32,
                "gradients of parameters of ", name(o.precision),
                " are accumulated in that type or in f32, not in ", name(accumulated));
  const Dtype sum = compute_type(o.precision);
  require_input(!o.reproducible || (o.grad_accum_dtype.value_or(sum) == sum &&
                                    o.communication_data_type.value_or(sum) == sum),
                "reproducible sums are accumulated and communicated in ", name(sum),
                "; leave grad_accum_dtype and communication_data_type out");
  const bool offload = o.offload_optimizer != OffloadDevice::none && shards_optimizer(o.stage);
  require_input(!offload || host != nullptr,
                "offload_optimizer needs host memory: pass a host Memory to initialize()");
  const bool offload_param = o.offload_param != OffloadDevice::none && shards_parameter(o.stage);
  require_input(!offload_param || o.stage != StageKind::zero3_qwz, name(o.stage),
                " quantizes its parameter shard on the device: leave offload_param out, or "
                "take zero3");
  require_input(o.offload_param != OffloadDevice::cpu || !offload_param || host != nullptr,
                "offload_param needs host memory: pass a host Memory to initialize()");
  StageOptions options{.optimizer = o.optimizer,
                       .dtype = o.precision,
                       .gradient_dtype = o.grad_accum_dtype,
                       .communication_dtype = o.communication_data_type,
                       .skip_nonfinite = o.check_grad_overflow || o.precision != Dtype::bf16,
                       .seed = o.seed,
                       .reduce_bucket_size = o.reduce_bucket_size,
                       .allgather_bucket_size = o.allgather_bucket_size,
                       .overlap = o.overlap,
                       .reproducible = o.reproducible,
                       .ranks_per_node = o.ranks_per_node,
                       .replicas = o.replicas,
                       .placement = {}};
  if (offload) options.placement.gradient = options.placement.optimizer = host;
  require_input(!needs_disk(o) || (disk != nullptr && disk->pool() == Pool::disk),
                "offload to nvme needs a disk: pass a Memory of Pool::disk to initialize()");
  if (offload_param)
    options.placement.parameter = o.offload_param == OffloadDevice::nvme ? disk : host;
  if (offload && o.offload_optimizer == OffloadDevice::nvme) {
    require_input(o.swap.sub_group_size > 0, "sub_group_size must be at least 1, not ",
                  o.swap.sub_group_size);
    options.placement.swap = o.swap;
    options.placement.swap.disk = disk;
  }
  return options;
}

Engine::Engine(std::unique_ptr<Stage> stage, const EngineOptions& options, Memory* host)
    : options_(options), stage_(std::move(stage)), schedule_(*stage_) {
  require_input(options.accumulation > 0, "a step needs at least one micro-batch, not ",
                options.accumulation);
  if (options.precision == Dtype::f16 || options.loss_scale.static_scale > 0)
    scaler_.emplace(options.loss_scale);
  schedule_.keep_inputs(input_keeper(options, stage_->comm(), host));
}

Var Engine::forward(const Forward& build) {
  require(backward_done_, "forward: call backward() before the next forward()");
  require(!is_gradient_accumulation_boundary(), "forward: step() is due after ", micro_batch_,
          " micro-batches");
  backward_done_ = false;
  stage_->memory().events().set_phase("forward");
  Var loss = build(&tape_, schedule_);
  require_loss(loss, "forward");
  require(
      loss.needs_gradient() && std::ranges::any_of(stage_->parameters(), &Parameter::requires_grad),
      "forward: there is nothing to train: the loss depends on no parameter, or only on frozen "
      "ones; set requires_grad of those to train");
  return loss;
}

double Engine::evaluate(const Forward& build) {
  stage_->memory().events().set_phase("evaluate");
  const Var loss = build(nullptr, schedule_);
  require_loss(loss, "evaluate");
  return kernel::read(loss.value(), 0);
}

void Engine::backward(Var& loss) {
  require(!backward_done_ && loss.tape() == &tape_,
          "backward: this loss does not come from the last forward()");
  losses_.push_back(kernel::start_download<float>(loss.value()));
  const Var from = std::exchange(loss, {});
  schedule_.backward(tape_, from, loss_scale(), micro_batch_ + 1 == options_.accumulation);
  backward_done_ = true;
  ++micro_batch_;
}

std::optional<StepResult> Engine::step() {
  require(backward_done_, "step: the last micro-batch had no backward()");
  if (!is_gradient_accumulation_boundary()) return std::nullopt;
  const StepResult result = schedule_.step({.lr = learning_rate(),
                                            .max_norm = options_.gradient_clipping,
                                            .scale = loss_scale(),
                                            .micro_batches = int(options_.accumulation)},
                                           [this] { gather_losses(); });
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
  for (kernel::Download<float>& loss : losses_) mine.push_back(double(loss.wait()[0]));
  losses_.clear();
  if (!options_.reproducible)
    mine = {std::accumulate(mine.begin(), mine.end(), 0.0) / double(options_.accumulation)};
  rank_losses_ = RankNumbers(stage_->comm(), stage_->memory(), mine, {"loss", Purpose::loss});
}

double Engine::loss_of_step() {
  if (!options_.reproducible) return rank_losses_.wait_for_sum() / stage_->comm().size();
  const std::vector<double>& losses = rank_losses_.wait();  // by rank, then micro-batch
  if (losses.empty()) return 0;                             // no step yet
  const size_t A = size_t(options_.accumulation);
  double sum = 0;
  for (size_t a = 0; a < A; ++a)
    for (size_t i = a; i < losses.size(); i += A) sum += losses[i];
  return sum / double(losses.size());
}

double Engine::learning_rate() const {
  return zl::learning_rate(options_.schedule, options_.optimizer.lr, updates_);
}

void Engine::require_between_steps(const char* what) const {
  require(backward_done_ && micro_batch_ == 0, what, ": ", micro_batch_, " of ",
          options_.accumulation, " micro-batches are accumulated; call it between two steps");
}

Engine::State Engine::state() const {
  require_between_steps("state");
  State state{.updates = updates_, .scaler = std::nullopt};
  if (scaler_) state.scaler = scaler_->state();
  return state;
}

void Engine::restore(const State& state) {
  require_between_steps("restore");
  require(state.scaler.has_value() == scaler_.has_value(),
          "restore: the saved state and this engine must both have a loss scale, or neither");
  updates_ = state.updates;
  if (scaler_) scaler_->restore(*state.scaler);
}

std::unique_ptr<Engine> initialize(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                   const EngineOptions& options, Memory* host, Memory* disk) {
  return std::make_unique<Engine>(
      make_stage(options.stage, units, comm, memory, stage_options(options, host, disk)), options,
      host);
}

}  // namespace zl
