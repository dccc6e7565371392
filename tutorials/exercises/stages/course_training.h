// The training runs with which a student's stage is checked. The process that measures and the one
// that judges derive the same case from the seed.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "stages/train/trainer.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

struct StageCase {
  StageKind stage = StageKind::zero1;
  int ranks = 3;
  int64_t micro_batches = 1, steps = 3;
  // The model: odd sizes, and no two blocks of one size.
  int64_t vocab = 53, channels = 31, hidden = 97, blocks = 2;
  bool block_twice = false;  // block 0 runs again after the last one
  double max_norm = 0;
  Dtype dtype = Dtype::f32;
  int64_t bucket = 1;         // reduce_bucket_size and allgather_bucket_size
  bool reads_weights = true;  // false: nothing but the run itself is in the ledger and the log
  uint64_t seed = 0;
};

// One call of a student's stage function: what it allocated and freed.
struct StageCall {
  char function[28] = "";  // "reduce_gradient", "the constructor"; "Work::wait" of what it returned
  int unit = -1;           // -1: of no unit
  int64_t event = 0;       // of the rank's event stream, from 0
  int64_t waits = 0;       // for collectives of the stage
  // [B] by which each use grew, and by which it was larger at the peak inside the call.
  std::array<int64_t, kMemoryUses> grown{}, peak{};

  bool is(std::string_view name) const { return name == function; }
};

// What a rank sent in the whole run: a row for each purpose, collective and group. A student's code
// chooses the purpose, which may be no number of the enumeration.
struct SentRow {
  Purpose purpose{};
  Collective collective{};
  Traffic traffic;
};

// Of exercise 05, 06 or 07.
StageCase stage_case(const CheckOptions& options);

// The micro-batches of a case: two rows of five tokens each.
std::unique_ptr<BatchSource> course_data(const StageCase& c);
// `c` and `data` must outlive it. The CPU; the measuring side changes that.
TrainingSpec training_spec(const StageCase& c, const BatchSource& data);

}  // namespace zl::exercises
