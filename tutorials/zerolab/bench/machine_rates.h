// CPU limits: peak FLOP/s, memory bandwidth, core-to-core latency; and the speed of a disk. Rates
// are measured on one core or on several at the same time. All functions throw Interrupted between
// samples.
#pragma once

#include <functional>
#include <string>

#include "tutorials/zerolab/bench/measure.h"

namespace zl::cli {

struct CoreRun {
  int cores = 1;  // one thread on each
  int samples = 7;
  double seconds = 0.02;  // [s] at least per sample
};

bool has_multiply_add();  // whether there is a loop of multiply-adds for this CPU
// [FLOP/s] of fused multiply-adds in fp32 on vector registers alone, with the width that has the
// best sample; zeros without a loop.
Spread multiply_add_rate(const CoreRun& run);
double multiply_add_peak(int cores = 1);  // the best sample
// [FLOP/s] of our fp32 matmul of two n × n matrices; each core has its own matrices.
Spread matmul_rate(int64_t n, const CoreRun& run);

// A pass over large arrays. Bytes are counted as STREAM does (McCalpin 1995): a cache line that is
// read only because it will be written does not count.
enum class MemoryPass {
  copy,  // b = a
  triad  // c = a + s·b
};
// [B/s] over arrays of `array` bytes, divided among the cores.
Spread memory_rate(MemoryPass pass, int64_t array, const CoreRun& run);

// [s] Half of a round trip of one word between two cores. The waiting thread spins, or it sleeps
// and must be woken.
Spread latency(bool sleeping, int samples, int rounds);

// [B/s] of a file of `bytes`, as 'offload_optimizer' to nvme writes and reads it, in turn. `begin`
// is called before each of the 2 · (samples + 1) passes.
struct DiskRates {
  std::string method;  // "O_DIRECT, aligned to 4096 bytes"
  Spread write, read;
};
DiskRates disk_rates(const std::string& folder, int64_t bytes, int samples,
                     const std::function<void(const std::string&)>& begin);

}  // namespace zl::cli
