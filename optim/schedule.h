// Learning rates by DeepSpeed's formulas (deepspeed/runtime/lr_schedules.py), including its
// off-by-one: its scheduler steps after the optimizer and starts at -1. So WarmupLR uses its
// minimum in steps 1 and 2.
#pragma once

#include <cstdint>

namespace zl {

enum class ScheduleKind { constant, warmup, warmup_decay, warmup_cosine };
enum class WarmupType { log, linear };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  double warmup_min_lr = 0, warmup_max_lr = 0.001;  // WarmupLR, WarmupDecayLR
  int64_t warmup_num_steps = 1000;                  // values below 2 count as 2
  WarmupType warmup_type = WarmupType::log;
  int64_t total_num_steps = 0;  // WarmupDecayLR, WarmupCosineLR: required
  // WarmupCosineLR: fractions of the optimizer's lr.
  double warmup_min_ratio = 0, cos_min_ratio = 0.0001;
};

// The rate of the update after `updates` earlier ones, without skipped steps. base: the optimizer's
// lr.
double learning_rate(const ScheduleConfig& schedule, double base, int64_t updates);

}  // namespace zl
