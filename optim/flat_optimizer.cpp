#include "optim/flat_optimizer.h"

#include <algorithm>

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

bool keeps_master(const OptimizerConfig& config, Dtype parameters) {
  return config.separate_master || parameters == Dtype::bf16 || parameters == Dtype::f16;
}

// The conditions of torch.optim.AdamW and SGD.
void check(const OptimizerConfig& c) {
  require_input(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1,
                "betas must be in [0, 1), not [", c.beta1, ", ", c.beta2, "]");
  require_input(c.eps >= 0, "eps must not be negative: ", c.eps);
  require_input(c.weight_decay >= 0, "weight decay must not be negative: ", c.weight_decay);
  require_input(c.momentum >= 0, "momentum must not be negative: ", c.momentum);
  require_input(!c.nesterov || (c.momentum > 0 && c.dampening == 0),
                "nesterov needs a momentum above 0 and dampening 0, not ", c.momentum, " and ",
                c.dampening);
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
            ") must begin at ", covered, ", the end of the previous group");
    covered = r.end;
  }
  require(covered == numel, "parameter groups cover ", covered, " of ", numel, " elements");
  merge_groups();
  if (keeps_master(config_, parameters))
    master_ = add_state("master_weights", MemoryUse::master_weights);
}

// Adjacent groups that have the same settings become one: a kernel updates each group.
void FlatOptimizer::merge_groups() {
  std::vector<ParameterGroup> merged;
  for (const ParameterGroup& group : groups_) {
    const bool same = !merged.empty() && merged.back().weight_decay == group.weight_decay &&
                      merged.back().frozen == group.frozen;
    if (same)
      merged.back().end = group.end;
    else
      merged.push_back(group);
  }
  groups_ = std::move(merged);
}

Tensor FlatOptimizer::add_state(const char* name, MemoryUse use) {
  state_.push_back({name, Tensor::zeros(memory_, use, {numel_}, compute_type(parameters_))});
  return state_.back().tensor;
}

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

Tensor FlatOptimizer::workspace_like(const Tensor& t) const {
  return Tensor::empty(memory_, MemoryUse::workspace, t.shape(), t.dtype());
}

void FlatOptimizer::update(const Tensor& parameters, const Tensor& gradients, double lr,
                           float gradient_scale) {
  require_range(parameters, gradients);
  const bool copy_parameters = in_other_memory(parameters);
  const bool copy_gradients = in_other_memory(gradients);
  const Tensor p = copy_parameters ? workspace_like(parameters) : parameters;
  const Tensor g = copy_gradients ? workspace_like(gradients) : gradients;
  const bool frozen = std::any_of(groups_.begin(), groups_.end(),
                                  [](const ParameterGroup& group) { return group.frozen; });
  // With a master copy and nothing frozen, step() writes every parameter and reads none.
  const bool reads_parameters = !master_.defined() || frozen;
  if (copy_parameters && reads_parameters) kernel::copy(parameters, p);
  if (copy_gradients) kernel::copy(gradients, g);
  ++steps_;
  step(p, g, lr, gradient_scale);
  if (copy_parameters) kernel::copy(p, parameters);
}

void FlatOptimizer::skip_update(const Memory& parameters, const Tensor& gradients) const {
  const Tensor p = &parameters != &memory_
                       ? Tensor::empty(memory_, MemoryUse::workspace, {numel_}, parameters_)
                       : Tensor();
  const Tensor g = in_other_memory(gradients) ? workspace_like(gradients) : Tensor();
}

std::unique_ptr<FlatOptimizer> make_optimizer(Memory& memory, int64_t numel, Dtype parameters,
                                              const OptimizerConfig& config,
                                              std::vector<ParameterGroup> groups) {
  if (config.kind == OptimizerKind::sgd)
    return std::make_unique<FlatSgd>(memory, numel, parameters, config, std::move(groups));
  return std::make_unique<FlatAdamW>(memory, numel, parameters, config, std::move(groups));
}

OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters) {
  const int64_t one = size_of(compute_type(parameters));
  const int64_t states = config.kind == OptimizerKind::adamw ? 2 : config.momentum != 0 ? 1 : 0;
  return {.state = states * one, .master = keeps_master(config, parameters) ? one : 0};
}

}  // namespace zl
