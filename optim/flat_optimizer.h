// An optimizer for one flat range of parameters: a full unit or one rank's shard of it. An update
// is elementwise, so updating a range gives the same bits as updating the full unit and slicing it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/backend.h"

namespace zl {

// Optimizer state that is on disk. An update reads it in chunks into host memory, and writes the
// chunks back: ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv:2104.07857), section 5.2. The names of
// the settings are DeepSpeed's. Results are bitwise identical for every setting.
struct Swap {
  Memory* disk = nullptr;            // null: in the optimizer's memory; else outlives the optimizer
  int64_t sub_group_size = 1 << 20;  // [n] of a chunk, rounded up to a multiple of 1,024
  // The next chunk is read, and the previous one written, while one is updated.
  bool pipeline_read = true, pipeline_write = true;
  bool operator==(const Swap&) const = default;
};

// Elements [begin, end) of a flat range with the same settings, as a parameter group of torch.
struct ParameterGroup {
  int64_t begin, end;  // [n]
  double weight_decay;
  bool frozen = false;  // never updated; the state is allocated all the same
};

// Whether `name`, of a parameter, matches `glob`: * any text, ? one character,
// [a-c] one of these.
bool matches_glob(std::string_view glob, std::string_view name);

// A tensor of an optimizer's state. The name is torch's: "exp_avg", "exp_avg_sq" or
// "momentum_buffer"; or "master_weights".
struct OptimizerState {
  const char* name;
  Tensor tensor;  // (n) fp32 (fp64 for f64 parameters)
};

class FlatOptimizer {
 public:
  // Allocates and clears the state in `memory` (optimizer_state, master_weights). `groups` must
  // cover [0, numel) in order; empty: config.weight_decay everywhere. With swap.disk the state is
  // there, and `memory` holds chunks of it during an update. Throws OutOfMemory, and OutputError if
  // the disk has no room.
  FlatOptimizer(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                std::vector<ParameterGroup> groups = {}, const Swap& swap = {});

  // One step of all n elements. gradients (n) are first multiplied by `gradient_scale`.
  //
  // Either may belong to another memory than the optimizer's. update() then copies what it reads
  // into workspace of the optimizer's memory, and the result back, with the same bits:
  // ZeRO-Offload, Ren et al. 2021 (arXiv:2101.06840), section 4, where the optimizer runs on the
  // host.
  //
  // Throws OutputError if the disk of a Swap fails. The step is then counted, and a part of the
  // state updated: only a checkpoint restores it.
  void update(const Tensor& parameters, const Tensor& gradients, double lr, float gradient_scale);
  // For a skipped step: allocates and frees the workspace of update(), so that peaks do not depend
  // on whether gradients overflow.
  void skip_update(const Memory& parameters, const Tensor& gradients) const;

  // The complete state of this optimizer, with steps(): a checkpoint saves both. The tensors are
  // handles, so writing to them restores the state. They are on disk if Swap::disk says so.
  const std::vector<OptimizerState>& state() const { return state_; }
  int64_t steps() const { return steps_; }  // updates made; skipped steps do not count
  void set_steps(int64_t steps) { steps_ = steps; }

  // (n) The state "master_weights", or undefined. Code that sets the parameters must set it too:
  // they are its rounding.
  const Tensor& master() const { return master_; }
  int64_t numel() const { return numel_; }

 private:
  void add_state(const char* name, MemoryUse use);  // (n) zeros
  // The arithmetic of update() for elements [begin, begin + n), whose tensors are all in this
  // memory; steps() includes this step. `state`: in the order of state(). One kernel for each group
  // of the range whose parameters are not frozen.
  // AdamW: Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2.
  // SGD with momentum and Nesterov momentum, as in torch.optim.SGD: Sutskever et al. 2013, "On the
  // importance of initialization and momentum in deep learning", section 2.
  void update_groups(int64_t begin, const Tensor& parameters, const Tensor& gradients,
                     const std::vector<Tensor>& state, double lr, float gradient_scale) const;
  // `t`, or uninitialised workspace of its shape if it is in another memory.
  Tensor in_this_memory(const Tensor& t) const;
  bool is_swapped() const { return swap_.disk && !stored_.empty(); }

  OptimizerConfig config_;
  std::vector<ParameterGroup> groups_;  // covers [0, numel)
  Tensor master_;                       // the first state, if it is defined
  Memory& memory_;
  Swap swap_;
  int64_t numel_, steps_ = 0;
  Dtype parameters_;
  std::vector<OptimizerState> state_;
  std::vector<Tensor> stored_;  // the same tensors; on disk they are padded
};

// What an optimizer allocates per element.
struct OptimizerBytes {
  int64_t state, master;  // [B] of optimizer_state, of master_weights
};
OptimizerBytes optimizer_bytes(const OptimizerConfig& config, Dtype parameters);

}  // namespace zl
