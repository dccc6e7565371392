// Exercise 03: what you write.
#pragma once

#include "dist/communicator.h"

namespace zl::exercises {

// An all-reduce from send and receive; every rank calls it. In: this rank's values (n), f32. Out:
// the sum over all ranks, with the same bits on every rank.
//
// Chunk c of N is [n * c / N, n * (c + 1) / N). Rank r sends to rank r + 1 and receives from rank
// r - 1, both modulo N: N - 1 chunks while it reduces, N - 1 chunks while it gathers. So it sends
// 2 (N - 1) / N * n values in 2 (N - 1) messages. n may be any number, also less than N: then some
// chunks are empty, and their messages may be left out. `scratch` holds one chunk: n / N elements,
// rounded up. Allocates nothing.
void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch);

}  // namespace zl::exercises
