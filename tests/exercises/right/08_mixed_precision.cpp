// Exercise 08: mixed precision with dynamic loss scaling.
#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/clip.h"
#include "stages/numerics/rank_numbers.h"
#include "tutorials/exercises/08_mixed_precision/mixed_precision.h"

namespace zl {
namespace {

class Precision final : public MixedPrecision {
 public:
  Precision(const PrecisionShard& shard, const PrecisionOptions& options)
      : shard_(shard),
        options_(options),
        scale_(options.initial_scale),
        master_(shard.initial.begin(), shard.initial.end()),
        gradient_(master_.size()) {
    round_master();
  }

  double loss_scale() const override { return scale_; }
  std::span<const float> master() const override { return master_; }

  PrecisionStep step(std::span<const f16> gradient) override {
    double squares = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient_[i] = float(gradient[i]) / float(scale_);
      squares += double(gradient_[i]) * double(gradient_[i]);
    }
    const double norm = std::sqrt(
        sum_over_ranks(shard_.comm, shard_.memory, squares, {"gradient norm", Purpose::norm}));
    const bool overflow = !std::isfinite(norm);
    if (!overflow) update(float(clip_factor(norm, options_.max_norm)));
    update_scale(overflow);
    return {norm, overflow};
  }

 private:
  void round_master() {
    for (size_t i = 0; i < master_.size(); ++i) shard_.parameters[i] = f16(master_[i]);
  }

  void update(float factor) {
    for (float& g : gradient_) g *= factor;
    shard_.optimizer.step(master_, gradient_);
    round_master();
  }

  void update_scale(bool overflow) {
    if (overflow) {
      scale_ = std::max(scale_ / 2, options_.min_scale);
      good_steps_ = 0;
    } else if (++good_steps_ == options_.window) {
      scale_ *= 2;
      good_steps_ = 0;
    }
  }

  PrecisionShard shard_;
  PrecisionOptions options_;
  double scale_;
  int good_steps_ = 0;  // in a row, since the scale has changed
  std::vector<float> master_, gradient_;
};

}  // namespace

std::unique_ptr<MixedPrecision> make_mixed_precision(const PrecisionShard& shard,
                                                     const PrecisionOptions& options) {
  return std::make_unique<Precision>(shard, options);
}

}  // namespace zl
