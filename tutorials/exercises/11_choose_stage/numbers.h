// The numbers that exercise 11 asks for: by the library, by the rules, and with a typical mistake.
#pragma once

#include <vector>

#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"

namespace zl::exercises::choose_stage_checks {

enum class Slip {
  none,
  // Padding, bytes per element, and what is sharded.
  unpadded,
  padded_to_ranks,
  padded_to_16,
  padded_together,
  twelve_in_fp32,
  eight_in_mixed,
  all_fp32,
  full_gradient,
  full_parameter,
  gradient_shard_in_zero1,
  // At the peak.
  kept_as_peak,
  no_full_gradient,
  no_full_gradient_in_zero2,
  no_full_parameter,
  without_root,
  root_alone,
  all_full,
  // Sent.
  no_ring_factor,
  of_all_ranks,
  one_pass,
  no_gather,
  root_twice,
  blocks_once,
  zero2_once,
  zero3_once,
  always_reduced,
  // Seconds.
  node_link,
  network_link,
  one_micro_batch,
  two_operations,
  overlapped,
  padded_operations,
  // The choice.
  below_limit,
  smallest,
  last_of_equal,
  by_kept,
  ignores_memory,
  zero3_if_none,
};

// What is asked of the case, for a stage; of a choice -1 is none.
double number(Asked asked, const ChoiceCase& c, int stage, Slip slip = Slip::none);
// What the library says.
double right_number(Asked asked, const ChoiceCase& c, int stage);
bool equal(double a, double b);  // but for rounding

struct Mistake {
  Asked asked;
  Slip slip;
  const char* meaning;
};
extern const std::vector<Mistake> kMistakes;

}  // namespace zl::exercises::choose_stage_checks
