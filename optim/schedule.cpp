#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zl {
namespace {

int64_t warmup_steps(const ScheduleConfig& s) { return std::max<int64_t>(2, s.warmup_num_steps); }

// From 0 (the minimum) to 1 (the maximum), for 0 <= i < warmup_steps.
double warmup(const ScheduleConfig& s, int64_t i) {
  const double steps = double(warmup_steps(s));
  return s.warmup_type == WarmupType::log ? 1 / std::log(steps) * std::log(double(i + 1))
                                          : double(i) / steps;
}

double cosine_ratio(const ScheduleConfig& s, int64_t i) {
  if (i < 0) return 0;
  if (i < warmup_steps(s)) return s.warmup_min_ratio + warmup(s, i) * (1 - s.warmup_min_ratio);
  const int64_t past = i - warmup_steps(s) + 1,
                total = std::max<int64_t>(1, s.total_num_steps - warmup_steps(s));
  const double progress = std::min(1.0, double(past) / double(total));
  return std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) *
                                             ((1 + std::cos(std::numbers::pi * progress)) / 2));
}

// From 1 (the maximum) to 0 at total_num_steps.
double decay(const ScheduleConfig& s, int64_t i) {
  return std::max(0.0, double(s.total_num_steps - i) /
                           double(std::max<int64_t>(1, s.total_num_steps - warmup_steps(s))));
}

}  // namespace

double learning_rate(const ScheduleConfig& s, double base, int64_t updates) {
  const int64_t i = updates - 1;  // DeepSpeed's last_batch_iteration, which starts at -1
  if (s.kind == ScheduleKind::constant) return base;
  if (s.kind == ScheduleKind::warmup_cosine) return base * cosine_ratio(s, i);
  if (i < 0) return s.warmup_min_lr;
  const double fraction = i < warmup_steps(s)                    ? warmup(s, i)
                          : s.kind == ScheduleKind::warmup_decay ? decay(s, i)
                                                                 : 1;
  return s.warmup_min_lr + (s.warmup_max_lr - s.warmup_min_lr) * fraction;
}

}  // namespace zl
