#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "tensor/error.h"

namespace zl {

LossScaler::LossScaler(const LossScaleConfig& config)
    : config_(config),
      state_{.scale = config.static_scale > 0 ? config.static_scale
                                              : std::ldexp(1.0, config.initial_scale_power),
             .overflows_left = config.hysteresis} {
  require_input(config.static_scale >= 0 && std::isfinite(config.static_scale),
                "a loss scale must be 0 (dynamic) or positive, not ", config.static_scale);
  require_input(config.window >= 1 && config.min_scale > 0, "a dynamic loss scale needs a window (",
                config.window, ") of at least 1 and a minimum above 0 (", config.min_scale, ")");
}

void LossScaler::update(bool overflow) {
  if (config_.static_scale > 0) return;
  auto& [scale, steps, last_overflow, overflows_left] = state_;
  const int64_t step = steps++;
  if (overflow) {
    last_overflow = step;
    if (overflows_left != 1) {  // a hysteresis below 1 never becomes 1, as in DeepSpeed
      if (overflows_left > 1) --overflows_left;
      return;
    }
    if (scale == config_.min_scale)
      throw LossScaleExhausted(str("the loss scale is at its minimum, ", scale,
                                   ", and the gradient is still not finite (DeepSpeed: Current "
                                   "loss scale already at minimum - cannot decrease scale anymore. "
                                   "Exiting run.). Try a smaller learning "
                                   "rate, clipping, or bf16"));
    scale = std::max(scale / 2, config_.min_scale);
    return;
  }
  if (config_.consecutive_hysteresis) overflows_left = config_.hysteresis;
  const int64_t good_before = step - last_overflow - 1;  // good steps since the last overflow
  if (good_before == 0 || good_before % config_.window != 0) return;
  overflows_left = config_.hysteresis;
  scale *= 2;
}

}  // namespace zl
