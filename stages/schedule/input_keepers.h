// Where the inputs of checkpointed passes are kept until backward: on the host, or partitioned over
// the ranks. Activation checkpointing's part of ZeRO-R (Rajbhandari et al. 2020, arXiv:1910.02054,
// section 6.1).
#pragma once

#include <functional>

#include "dist/communicator.h"
#include "nn/unit.h"
#include "stages/options.h"

namespace zl {

// Called with an input after the unit's forward pass; the result gives it back, bit for bit.
using InputKeeper = std::function<Kept(Tensor x)>;

// A copy is kept in `host`, and copied back. `host` must outlive the results.
InputKeeper inputs_on_host(Memory& host);

// P_a: each rank keeps ceil(n / N) of the n elements, as `keep_part` says, and one all-gather
// brings them together. Every rank must keep, and give back, the same inputs in the same order: see
// Options::replicated_micro_batches. `comm` must outlive the results.
InputKeeper partitioned_inputs(Communicator& comm, InputKeeper keep_part);

// As the options say; empty: inputs stay. `host`: for cpu_checkpointing. Throws InputError if the
// options contradict each other.
InputKeeper input_keeper(const Options& options, Communicator& comm, Memory* host);

}  // namespace zl
