// The loss scale of fp16 training: Micikevicius et al. 2018 (arXiv:1710.03740), section 3.2, with
// DeepSpeed's rules (deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler).
#pragma once

#include <cstdint>
#include <stdexcept>

namespace zl {

struct LossScaleConfig {
  double static_scale = 0;       // fp16.loss_scale; 0: dynamic
  int initial_scale_power = 16;  // the dynamic scale starts at 2^this
  int64_t window =
      1000;  // loss_scale_window: after so many good steps the next good one doubles the scale
  int64_t hysteresis = 2;  // so many overflows halve it; below 1, as in DeepSpeed, none ever does
  bool consecutive_hysteresis =
      false;             // true: a good step between two overflows starts their count again
  double min_scale = 1;  // min_loss_scale
};

// An overflow at the smallest scale: training cannot go on. Programs exit with 1.
class LossScaleExhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One number for all ranks: each has its own copy and shows it the same outcomes.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleConfig& config);

  double scale() const { return scale_; }  // of every micro-batch until update() is called
  // Once per step, after it: whether its gradient was not finite. Throws LossScaleExhausted if the
  // dynamic scale is at its minimum already.
  void update(bool overflow);

 private:
  LossScaleConfig config_;
  double scale_;
  int64_t steps_ = 0, last_overflow_ = -1, overflows_left_;  // the last: until the scale is halved
};

}  // namespace zl
