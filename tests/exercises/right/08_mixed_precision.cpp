// Exercise 08: mixed precision with dynamic loss scaling.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "optim/clip.h"
#include "stages/numerics/gradient_norm.h"
#include "tutorials/exercises/08_mixed_precision/mixed_precision.h"

namespace zl {
namespace {

class Precision final : public MixedPrecision {
 public:
  // The master weights are the initial values, in fp32. The parameters are their rounding.
  Precision(const PrecisionShard& shard, const PrecisionOptions& options)
      : shard_(shard), options_(options) {
    //> throw std::logic_error("not written yet: the constructor: master weights, parameters");
    scale_ = options.initial_scale;
    master_.assign(shard.initial.begin(), shard.initial.end());
    gradient_.resize(master_.size());
    round_master();
    //<
  }

  // options_.initial_scale at first.
  double loss_scale() const override {
    //> throw std::logic_error("not written yet: loss_scale()");
    return scale_;
    //<
  }

  std::span<const float> master() const override {
    //> throw std::logic_error("not written yet: master()");
    return master_;
    //<
  }

  // Unscales the gradient in fp32. The norm is that of the gradient of all ranks:
  // sum_over_ranks(shard_.comm, shard_.memory, NUMBER, {"gradient norm", Purpose::norm}) adds one
  // number per rank. If the norm is finite: multiplies the gradient by clip_factor(norm,
  // options_.max_norm), gives it with the master weights to shard_.optimizer, and rounds the master
  // weights to the parameters. Otherwise skips the step: nothing changes, on no rank.
  // Then updates the scale: an overflow halves it, down to options_.min_scale; options_.window good
  // steps in a row double it. Both begin a new count.
  PrecisionStep step(std::span<const f16> gradient) override {
    //> throw std::logic_error("not written yet: step");
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
    //<
  }

 private:
  //>
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

  //<
  PrecisionShard shard_;
  PrecisionOptions options_;
  //>
  double scale_ = 0;
  int good_steps_ = 0;  // in a row, since the scale has changed
  std::vector<float> master_, gradient_;
  //<
};

}  // namespace

std::unique_ptr<MixedPrecision> make_mixed_precision(const PrecisionShard& shard,
                                                     const PrecisionOptions& options) {
  return std::make_unique<Precision>(shard, options);
}

}  // namespace zl
