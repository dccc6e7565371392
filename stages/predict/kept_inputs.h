// Closed formulas of the inputs that checkpointed units keep for backward (nn/unit.h).
#pragma once

#include <vector>

#include "dist/communication_log.h"
#include "tensor/dtype.h"
#include "tensor/moves.h"

namespace zl {

// How they wait: Options says what the two settings do.
struct KeptInputs {
  std::vector<int64_t> elements;  // [n] of each input of a micro-batch
  Dtype dtype = Dtype::f32;
  int ranks = 1;
  bool partitioned = false, on_host = false;

  bool gathered() const { return partitioned && ranks > 1; }
};

// [B] of one rank between forward and backward, of all inputs together: n elements each, or
// ceil(n / N). On the device, or on the host.
int64_t kept_bytes(const KeptInputs& inputs);
// [B] on the device while backward uses one that does not stay there: N * ceil(n / N) elements, or
// n; the largest. 0: they stay.
int64_t returned_bytes(const KeptInputs& inputs);
// Of one rank and micro-batch: each kept byte to the host and back, and the all-gathers.
void add_input_moves(MoveLog& log, const KeptInputs& inputs);
void add_input_gathers(CommunicationLog& log, const KeptInputs& inputs);

}  // namespace zl
