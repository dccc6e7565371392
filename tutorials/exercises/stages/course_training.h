// The training runs with which a student's stage is checked. The process that measures and the one
// that judges derive the same case from the seed.
#pragma once

#include <memory>
#include <string>

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
  bool unused = false;       // a parameter that no pass uses
  bool frozen = false;       // a parameter that is not trained
  double max_norm = 0;
  Dtype dtype = Dtype::f32;
  int64_t bucket = 1;         // reduce_bucket_size and allgather_bucket_size
  bool bits = true;           // false: within rounding of another order of adding
  bool reads_weights = true;  // false: nothing but the run itself is in the ledger and the log
  uint64_t seed = 0;
};

// Of exercise 05, 06 or 07.
StageCase stage_case(const std::string& check, const CheckOptions& options);

// The micro-batches of a case: two rows of five tokens each.
std::unique_ptr<BatchSource> course_data(const StageCase& c);
// `c` and `data` must outlive it. The CPU; the measuring side changes that.
TrainingSpec training_spec(const StageCase& c, const BatchSource& data);

}  // namespace zl::exercises
