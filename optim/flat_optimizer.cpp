#include "optim/flat_optimizer.h"

#include <algorithm>

#include "optim/swapped_state.h"
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
                             const OptimizerConfig& config, std::vector<ParameterGroup> groups,
                             const Swap& swap)
    : config_(config),
      groups_(std::move(groups)),
      memory_(memory),
      swap_(swap),
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
  if (keeps_master(config_, parameters)) {
    add_state("master_weights", MemoryUse::master_weights);
    master_ = state_[0].tensor;
  }
  if (config_.kind == OptimizerKind::adamw) {
    add_state("exp_avg", MemoryUse::optimizer_state);
    add_state("exp_avg_sq", MemoryUse::optimizer_state);
  } else if (config_.momentum != 0) {
    add_state("momentum_buffer", MemoryUse::optimizer_state);
  }
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

void FlatOptimizer::add_state(const char* name, MemoryUse use) {
  const Dtype type = compute_type(parameters_);
  stored_.push_back(swap_.disk ? new_swapped(*swap_.disk, use, numel_, type)
                               : Tensor::zeros(memory_, use, {numel_}, type));
  state_.push_back({name, stored_.back().slice(0, {numel_})});
}

void FlatOptimizer::for_each_part(const Range& range,
                                  const std::function<void(const Part&)>& update) const {
  const int64_t end = range.begin + range.parameters.numel();
  for (const ParameterGroup& group : groups_) {
    const int64_t first = std::max(group.begin, range.begin);
    const int64_t n = std::min(group.end, end) - first;
    if (n > 0 && !group.frozen) update({group, first - range.begin, n});
  }
}

Tensor FlatOptimizer::master_of(const Range& range, const Part& part) const {
  return master_.defined() ? part.of(range.state[0]) : Tensor();
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
  ++steps_;
  if (!is_swapped()) return update_range({0, parameters, gradients, stored_}, lr, gradient_scale);
  update_swapped(stored_, memory_, swap_, [&](int64_t begin, const std::vector<Tensor>& chunks) {
    const int64_t n = std::min(chunks[0].numel(), numel_ - begin);
    Range range{begin, parameters.slice(begin, {n}), gradients.slice(begin, {n}), {}};
    for (const Tensor& chunk : chunks) range.state.push_back(chunk.slice(0, {n}));
    update_range(std::move(range), lr, gradient_scale);
  });
}

void FlatOptimizer::update_range(Range range, double lr, float gradient_scale) {
  const Tensor parameters = range.parameters, gradients = range.gradients;
  const bool copy_parameters = in_other_memory(parameters);
  const bool copy_gradients = in_other_memory(gradients);
  if (copy_parameters) range.parameters = workspace_like(parameters);
  if (copy_gradients) range.gradients = workspace_like(gradients);
  const bool frozen = std::any_of(groups_.begin(), groups_.end(),
                                  [](const ParameterGroup& group) { return group.frozen; });
  // With a master copy and nothing frozen, this writes every parameter and reads none.
  const bool reads_parameters = !master_.defined() || frozen;
  if (copy_parameters && reads_parameters) kernel::copy(parameters, range.parameters);
  if (copy_gradients) kernel::copy(gradients, range.gradients);
  if (config_.kind == OptimizerKind::sgd)
    sgd(range, lr, gradient_scale);
  else
    adamw(range, lr, gradient_scale);
  if (copy_parameters) kernel::copy(range.parameters, parameters);
}

void FlatOptimizer::skip_update(const Memory& parameters, const Tensor& gradients) const {
  int64_t n = numel_;  // at a time
  SwapBuffers buffers;
  if (is_swapped()) {
    buffers = new_swap_buffers(stored_, memory_, swap_);
    n = std::min(n, swap_plan(swap_, numel_).chunk);
  }
  const Tensor p = &parameters != &memory_
                       ? Tensor::empty(memory_, MemoryUse::workspace, {n}, parameters_)
                       : Tensor();
  const Tensor g = in_other_memory(gradients) ? workspace_like(gradients.slice(0, {n})) : Tensor();
}

std::unique_ptr<FlatOptimizer> make_optimizer(Memory& memory, int64_t numel, Dtype parameters,
                                              const OptimizerConfig& config,
                                              std::vector<ParameterGroup> groups,
                                              const Swap& swap) {
  return std::make_unique<FlatOptimizer>(memory, numel, parameters, config, std::move(groups),
                                         swap);
}

OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters) {
  const int64_t one = size_of(compute_type(parameters));
  const int64_t states = config.kind == OptimizerKind::adamw ? 2 : config.momentum != 0 ? 1 : 0;
  return {.state = states * one, .master = keeps_master(config, parameters) ? one : 0};
}

}  // namespace zl
