// Data-parallel training as a loop in one process: no stage, no communicator, no shard. What the
// four stages must compute.
#pragma once

#include "tests/stages/stage_run.h"

namespace zl::test {

// Which values are added first where a step has several micro-batches.
enum class AddFirst { micro_batches, ranks };  // as ddp and zero1 do; as zero2 and zero3 do

struct PlainRun {
  std::vector<double> losses, norms;
  std::vector<float> weights;  // all parameters in order
};

// The run that `spec` describes, in f32; spec.stage is not looked at.
PlainRun train_in_a_plain_loop(const StageRunSpec& spec, AddFirst order);

}  // namespace zl::test
