// An optimizer for one flat range of parameters. It does not know whether the range is a whole unit
// or one rank's shard of it: an update is elementwise, so a range gives the same bits as the slice
// of the whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace zl {

enum class OptimizerKind { adamw, sgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;  // the constant schedule's rate
  double weight_decay = 0;
  // AdamW. Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2; names and defaults of
  // torch.optim.AdamW.
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool bias_correction = true;
  bool decoupled = true;  // DeepSpeed's adam_w_mode; false adds the decay to the gradient
  // SGD, as torch.optim.SGD.
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  // Keeps an fp32 copy of the parameters and updates that; the parameters are its rounding. Always
  // on where the parameters are bf16 or f16; in fp32 an option that costs 4 bytes per parameter
  // more (20 instead of 16).
  bool separate_master = false;
  // Parameters whose names match one of these globs (*, ?) do not decay. Empty: all decay, as in
  // torch.
  std::vector<std::string> no_weight_decay;
};

// Elements [begin, end) of the range that are updated alike, as a parameter group of torch.
struct ParameterGroup {
  int64_t begin, end;
  double weight_decay;
  bool frozen = false;  // never updated; their state exists all the same
};

class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;

  // parameters (n), gradients (n), multiplied by `gradient_scale` first. One call is one step of
  // all n elements.
  //
  // Either may lie in another memory than the optimizer's. What is read then comes over and what
  // was written goes back through workspace of the optimizer's memory, with the same bits:
  // ZeRO-Offload, Ren et al. 2021 (arXiv:2101.06840), section 4, where the optimizer works on the
  // host.
  void update(const Tensor& parameters, const Tensor& gradients, double lr, float gradient_scale);
  // For a step that is not made: takes and gives back the memory that update() would, so that peaks
  // do not depend on data.
  void skip(const Memory& parameters, const Tensor& gradients) const;

  // (n) fp32, or undefined. Whoever sets the parameters sets it too: they must be its rounding.
  const Tensor& master() const { return master_; }
  int64_t steps() const { return steps_; }  // updates made; skipped steps do not count
  int64_t numel() const { return numel_; }

 protected:
  FlatOptimizer(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                std::vector<ParameterGroup> groups);
  // The update's arithmetic. All in one memory; steps() counts this one already.
  virtual void step(const Tensor& parameters, const Tensor& gradients, double lr,
                    float gradient_scale) = 0;
  Dtype state_dtype() const;  // fp32; fp64 for f64 parameters
  static Tensor part(const Tensor& flat, const ParameterGroup& group);  // undefined if `flat` is

  OptimizerConfig config_;
  std::vector<ParameterGroup> groups_;  // covers [0, numel)
  Tensor master_;

 private:
  // Throws std::invalid_argument unless both are as many elements as the range, and the parameters
  // of its type.
  void require_range(const Tensor& parameters, const Tensor& gradients) const;
  bool away(const Tensor& t) const { return &t.memory() != &memory_; }
  Tensor here(const Tensor& t) const;  // uninitialised, like `t` but in this memory

  Memory& memory_;
  int64_t numel_, steps_ = 0;
  Dtype parameters_;
};

// State is allocated in `memory` at once (optimizer_state, master_weights) and cleared. `groups`
// must cover [0, numel) in order; empty: config.weight_decay everywhere. Throws OutOfMemory.
std::unique_ptr<FlatOptimizer> make_optimizer(Memory& memory, int64_t numel, Dtype parameters,
                                              const OptimizerConfig& config,
                                              std::vector<ParameterGroup> groups = {});

// Bytes of optimizer_state and of master_weights that make_optimizer allocates per element.
struct OptimizerBytes {
  int64_t state, master;  // [B] per element
};
OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters);

// Whether `name` matches `glob`: * any text, ? one character.
bool matches_glob(std::string_view glob, std::string_view name);

}  // namespace zl
