// The same work on several cores at the same time, each thread on a core of its own.
#pragma once

#include <functional>

#include "tutorials/zerolab/bench/measure.h"

namespace zl::cli {

struct CoreRun {
  int cores = 1;
  int samples = 7;
  double seconds = 0.02;  // that a sample lasts at least
};

// A piece of one thread's work, small beside a sample. Returns how much it was: operations, bytes.
using Piece = std::function<double()>;

// [1/s] How much all threads do together, in each sample from the first one's start to the last
// one's end. `prepare` makes a thread's piece on that thread, so that its memory is near its core;
// one sample before the first is not counted. Throws what `prepare` throws, and Interrupted between
// samples.
Spread rate_on_cores(const CoreRun& run, const std::function<Piece(int thread)>& prepare);

// [s] That a word takes from one core to another: to a thread that spins, or to one that sleeps and
// must be woken. Half of a round trip. Needs two cores. Throws Interrupted between samples.
Spread hand_over_spinning(int samples, int rounds);
Spread hand_over_sleeping(int samples, int rounds);

}  // namespace zl::cli
