// Compute threads of a rank: PyTorch's intra-op threads. A kernel splits its elements, rows or
// columns among them, and never a sum. So results have the same bits for every number of threads.
//
// A thread that calls in_parallel has a team: the caller and compute_threads() - 1 workers, which
// start with its first call that needs them and end with the thread. A part whose worker does not
// come soon enough is computed by the caller. So a busy machine makes a call slower, but no call
// waits for a thread that has not begun.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tensor/shape.h"

namespace zl {

inline constexpr int kMostComputeThreads = 256;

// The number of threads that each rank of this process computes on; 1 by default.
int compute_threads();
// Call it while no kernel runs: workspace that was predicted before may not fit afterwards. Throws
// if `threads` is not within 1 and kMostComputeThreads.
void set_compute_threads(int threads);

// The number of parts into which in_parallel splits [0, n): at least 1, at most compute_threads(),
// and 1 inside of a part. grain: [n] all parts but the last are multiples of it.
int64_t parallel_parts(int64_t n, int64_t grain);

// Calls run(job, part) for each part from 0 to parts - 1, and returns when all calls have returned.
// If some throw, rethrows the exception of the lowest part. Throws std::system_error if a worker
// cannot start.
void run_parts(int64_t parts, void (*run)(const void* job, int64_t part), const void* job);

// [n] The grain of a simple loop over elements: some 5 µs, ten times what a part costs.
inline constexpr int64_t kGrain = 8192;
// The same of items that each take a loop over `elements`, such as rows.
inline int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements));
}
// The same of columns: multiples of 16, so that two threads rarely write into one cache line.
inline int64_t grain_of_columns(int64_t rows) { return round_up(grain_of(rows), 16); }

// Calls work(begin, end), or work(part, begin, end), with disjoint ranges that cover [0, n). All
// but the last range end at multiples of `grain`. Part p gets the p-th range. With one part this is
// work(0, n). Exceptions as in run_parts: so the first error in [0, n) is the one thrown, as in a
// loop.
template <class Work>
void in_parallel(int64_t n, int64_t grain, const Work& work) {
  struct Job {
    const Work& work;
    int64_t n, grain, parts;
    int64_t begin_of(int64_t part) const {
      return std::min(n, (n + grain - 1) / grain * part / parts * grain);
    }
  };
  const Job all{work, n, grain, parallel_parts(n, grain)};
  const auto run = [](const void* address, int64_t part) {
    const Job& job = *static_cast<const Job*>(address);
    const int64_t begin = job.begin_of(part), end = job.begin_of(part + 1);
    if constexpr (std::is_invocable_v<const Work&, int64_t, int64_t, int64_t>)
      job.work(part, begin, end);
    else
      job.work(begin, end);
  };
  if (all.parts == 1) return run(&all, 0);
  run_parts(all.parts, run, &all);
}

}  // namespace zl
