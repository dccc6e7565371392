#include "optim/flat_optimizer.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

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

bool matches_glob(std::string_view glob, std::string_view name) {
  return ::fnmatch(std::string(glob).c_str(), std::string(name).c_str(), FNM_NOESCAPE) == 0;
}

FlatOptimizer::FlatOptimizer(Memory& memory, int64_t numel, Dtype parameters,
                             const OptimizerConfig& config, std::vector<ParameterGroup> groups,
                             const Swap& swap)
    : config_(config), memory_(memory), swap_(swap), numel_(numel), parameters_(parameters) {
  check(config_);
  if (numel < 0 || !is_float(parameters))
    refuse("an optimizer cannot update ", numel, " parameters of ", name(parameters));
  if (groups.empty()) groups = {{0, numel, config_.weight_decay}};
  int64_t covered = 0;
  for (const ParameterGroup& group : groups) {
    if (group.begin != covered || group.end < group.begin)
      refuse("parameter group [", group.begin, ", ", group.end, ") must begin at ", covered,
             ", the end of the previous group");
    covered = group.end;
    // Adjacent groups that have the same settings become one: a kernel updates each group.
    const bool same = !groups_.empty() && groups_.back().weight_decay == group.weight_decay &&
                      groups_.back().frozen == group.frozen;
    if (same)
      groups_.back().end = group.end;
    else
      groups_.push_back(group);
  }
  if (covered != numel) refuse("parameter groups cover ", covered, " of ", numel, " elements");
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

void FlatOptimizer::add_state(const char* name, MemoryUse use) {
  const Dtype type = compute_type(parameters_);
  stored_.push_back(swap_.disk  // where a new part of the file is zeros
                        ? Tensor::empty(*swap_.disk, use, {swap_plan(swap_, numel_).stored}, type)
                        : Tensor::zeros(memory_, use, {numel_}, type));
  state_.push_back({name, stored_.back().slice(0, {numel_})});
}

Tensor FlatOptimizer::in_this_memory(const Tensor& t) const {
  if (&t.memory() == &memory_) return t;
  return Tensor::empty(memory_, MemoryUse::workspace, t.shape(), t.dtype());
}

void FlatOptimizer::update(const Tensor& parameters, const Tensor& gradients, double lr,
                           float gradient_scale) {
  if (parameters.numel() != numel_ || parameters.dtype() != parameters_ ||
      gradients.numel() != numel_)
    refuse("this optimizer updates ", numel_, " parameters of ", name(parameters_), ", not ",
           parameters.numel(), " of ", name(parameters.dtype()), " by ", gradients.numel(),
           " gradients");
  ++steps_;
  const auto copy = [](const Tensor& from, const Tensor& to) {
    if (&from.memory() != &to.memory()) kernel::copy(from, to);
  };
  const auto update_chunk = [&](int64_t begin, const std::vector<Tensor>& state) {
    const int64_t n = state.empty() ? numel_ : std::min(state[0].numel(), numel_ - begin);
    const Tensor p = parameters.slice(begin, {n}), g = gradients.slice(begin, {n});
    const Tensor own_p = in_this_memory(p), own_g = in_this_memory(g);
    // With a master copy and nothing frozen, this writes every parameter and reads none.
    if (!master_.defined() || std::ranges::any_of(groups_, &ParameterGroup::frozen)) copy(p, own_p);
    copy(g, own_g);
    update_groups(begin, own_p, own_g, state, lr, gradient_scale);
    copy(own_p, p);
  };
  if (is_swapped())
    update_swapped(stored_, memory_, swap_, update_chunk);
  else
    update_chunk(0, stored_);
}

void FlatOptimizer::update_groups(int64_t begin, const Tensor& parameters, const Tensor& gradients,
                                  const std::vector<Tensor>& state, double lr,
                                  float gradient_scale) const {
  for (const ParameterGroup& group : groups_) {
    const int64_t first = std::max<int64_t>(0, group.begin - begin),
                  end = std::min(group.end - begin, parameters.numel());
    if (first >= end || group.frozen) continue;
    const auto part = [=](const Tensor& t) { return t.slice(first, {end - first}); };
    OptimizerUpdate update{.parameter = part(parameters), .gradient = part(gradients)};
    update.config = config_;
    update.config.lr = lr;
    update.config.weight_decay = group.weight_decay;
    update.gradient_scale = gradient_scale;
    update.step = steps_;
    Tensor* const states[] = {&update.master, &update.moment, &update.exp_avg_sq};
    for (size_t i = 0; i < state.size(); ++i)  // the master copy is the first if there is one
      *states[i + !master_.defined()] = part(state[i]);
    kernel::update_parameters(update);
  }
}

void FlatOptimizer::skip_update(const Memory& parameters, const Tensor& gradients) const {
  int64_t n = numel_;  // at a time
  SwapBuffers buffers;
  if (is_swapped()) {
    buffers = new_swap_buffers(stored_, memory_, swap_);
    n = std::min(n, swap_plan(swap_, numel_).chunk);
  }
  Tensor p, g;  // in the order of update()
  if (&parameters != &memory_) p = Tensor::empty(memory_, MemoryUse::workspace, {n}, parameters_);
  if (&gradients.memory() != &memory_) g = in_this_memory(gradients.slice(0, {n}));
}

OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters) {
  const int64_t one = size_of(compute_type(parameters));
  const int64_t states = config.kind == OptimizerKind::adamw ? 2 : config.momentum != 0 ? 1 : 0;
  return {.state = states * one, .master = keeps_master(config, parameters) ? one : 0};
}

}  // namespace zl
