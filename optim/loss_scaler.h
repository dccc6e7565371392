// The loss scale of fp16 training: Micikevicius et al. 2018 (arXiv:1710.03740), section 3.2, with
// DeepSpeed's rules (deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler).
#pragma once

#include <cstdint>
#include <stdexcept>

namespace zl {

struct LossScaleConfig {
  double static_scale = 0;       // fp16.loss_scale; 0: dynamic
  int initial_scale_power = 16;  // the dynamic scale starts at 2^this
  // loss_scale_window: after this many good steps the next good step doubles the scale.
  int64_t window = 1000;
  // This many overflows halve the scale. Below 1 none does, as in DeepSpeed.
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;  // true: a good step restarts the count of overflows
  double min_scale = 1;                 // min_loss_scale
};

// An overflow at the smallest scale: training cannot continue. Programs exit with 1.
class LossScaleExhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Each rank has its own scaler. All get the same outcomes, so all have the same scale.
class LossScaler {
 public:
  // The complete state: what a checkpoint saves.
  struct State {
    double scale = 1;
    int64_t steps = 0;
    int64_t last_overflow = -1;  // the number of that step, from 0
    int64_t overflows_left = 1;  // until the scale is halved
    bool operator==(const State&) const = default;
  };

  explicit LossScaler(const LossScaleConfig& config);

  double scale() const { return state_.scale; }  // of every micro-batch until the next update()
  // Call once after each step. overflow: whether its gradient was not finite. Throws
  // LossScaleExhausted if the dynamic scale must be halved but is at its minimum.
  void update(bool overflow);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaleConfig config_;
  State state_;
};

}  // namespace zl
