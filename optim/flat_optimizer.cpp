#include "optim/flat_optimizer.h"

#include <algorithm>

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

Dtype state_type(Dtype parameters) { return parameters == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

bool keeps_master(const OptimizerConfig& config, Dtype parameters) {
  return config.separate_master || parameters == Dtype::bf16 || parameters == Dtype::f16;
}

// The conditions of torch.optim.AdamW and SGD.
void check(const OptimizerConfig& c) {
  require_input(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1,
                "betas must lie in [0, 1), not [", c.beta1, ", ", c.beta2, "]");
  require_input(c.eps >= 0, "eps must not be negative: ", c.eps);
  require_input(c.weight_decay >= 0, "weight decay must not be negative: ", c.weight_decay);
  require_input(c.momentum >= 0, "momentum must not be negative: ", c.momentum);
  require_input(!c.nesterov || (c.momentum > 0 && c.dampening == 0),
                "Nesterov's variant needs a momentum above 0 and dampening 0, not ", c.momentum,
                " and ", c.dampening);
}

}  // namespace

FlatOptimizer::FlatOptimizer(Memory& memory, int64_t numel, Dtype parameters,
                             const OptimizerConfig& config, std::vector<ParameterGroup> groups)
    : config_(config),
      groups_(std::move(groups)),
      memory_(memory),
      numel_(numel),
      parameters_(parameters) {
  check(config_);
  require(numel >= 0 && is_float(parameters), "an optimizer cannot update ", numel,
          " parameters of ", name(parameters));
  if (groups_.empty()) groups_ = {{0, numel, config_.weight_decay}};
  int64_t covered = 0;
  for (const ParameterGroup& r : groups_) {
    require(r.begin == covered && r.end >= r.begin, "parameter group [", r.begin, ", ", r.end,
            ") must begin at ", covered, ", where the one before it ended");
    covered = r.end;
  }
  require(covered == numel, "parameter groups cover ", covered, " of ", numel, " elements");
  if (keeps_master(config_, parameters))
    master_ = Tensor::zeros(memory, MemoryUse::master_weights, {numel}, state_dtype());
}

Dtype FlatOptimizer::state_dtype() const { return state_type(parameters_); }

Tensor FlatOptimizer::part(const Tensor& flat, const ParameterGroup& group) {
  return flat.defined() ? flat.slice(group.begin, {group.end - group.begin}) : Tensor();
}

void FlatOptimizer::require_range(const Tensor& parameters, const Tensor& gradients) const {
  require(parameters.numel() == numel_ && parameters.dtype() == parameters_ &&
              gradients.numel() == numel_,
          "this optimizer updates ", numel_, " parameters of ", name(parameters_), ", not ",
          parameters.numel(), " of ", name(parameters.dtype()), " by ", gradients.numel(),
          " gradients");
}

Tensor FlatOptimizer::here(const Tensor& t) const {
  return Tensor::empty(memory_, MemoryUse::workspace, t.shape(), t.dtype());
}

void FlatOptimizer::update(const Tensor& parameters, const Tensor& gradients, double lr,
                           float gradient_scale) {
  require_range(parameters, gradients);
  const Tensor p = away(parameters) ? here(parameters) : parameters;
  const Tensor g = away(gradients) ? here(gradients) : gradients;
  const bool frozen = std::any_of(groups_.begin(), groups_.end(),
                                  [](const ParameterGroup& group) { return group.frozen; });
  const bool all_written = master_.defined() && !frozen;  // the master says what they are
  if (away(parameters) && !all_written) kernel::copy(parameters, p);
  if (away(gradients)) kernel::copy(gradients, g);
  ++steps_;
  step(p, g, lr, gradient_scale);
  if (away(parameters)) kernel::copy(p, parameters);
}

void FlatOptimizer::skip(const Memory& parameters, const Tensor& gradients) const {
  const Tensor p = &parameters != &memory_
                       ? Tensor::empty(memory_, MemoryUse::workspace, {numel_}, parameters_)
                       : Tensor();
  const Tensor g = away(gradients) ? here(gradients) : Tensor();
}

std::unique_ptr<FlatOptimizer> make_optimizer(Memory& memory, int64_t numel, Dtype parameters,
                                              const OptimizerConfig& config,
                                              std::vector<ParameterGroup> groups) {
  if (config.kind == OptimizerKind::sgd)
    return std::make_unique<FlatSgd>(memory, numel, parameters, config, std::move(groups));
  return std::make_unique<FlatAdamW>(memory, numel, parameters, config, std::move(groups));
}

OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters) {
  const int64_t one = size_of(state_type(parameters));
  const int64_t states = config.kind == OptimizerKind::adamw ? 2 : config.momentum != 0 ? 1 : 0;
  return {.state = states * one, .master = keeps_master(config, parameters) ? one : 0};
}

}  // namespace zl
