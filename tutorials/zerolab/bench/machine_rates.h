// CPU limits: peak FLOP/s, memory bandwidth, core-to-core latency. Rates are measured on one core
// or on several at the same time. All functions throw Interrupted between samples.
#pragma once

#include <string>

#include "tutorials/zerolab/bench/measure.h"

namespace zl::cli {

struct CoreRun {
  int cores = 1;  // one thread on each
  int samples = 7;
  double seconds = 0.02;  // [s] at least per sample
};

// A loop of fused multiply-adds on vector registers alone, which this CPU can run.
struct MultiplyAddLoop {
  const char *name, *key;  // "AVX-512", "multiply_add_avx512"
  int floats;              // per register
  void (*run)(int64_t rounds);
};
std::vector<MultiplyAddLoop> multiply_add_loops();
// [FLOP/s] in fp32.
Spread multiply_add_rate(const MultiplyAddLoop& loop, const CoreRun& run);
// [FLOP/s] Best sample of the fastest loop; 0 if there is no loop for this CPU.
double multiply_add_peak(int cores = 1);
// [FLOP/s] of our fp32 matmul of two n × n matrices; each core has its own matrices.
Spread matmul_rate(int64_t n, const CoreRun& run);

// A pass over large arrays. Bytes are counted as STREAM does (McCalpin 1995): a cache line that is
// read only because it will be written does not count.
enum class MemoryPass {
  copy,   // b = a
  triad,  // c = a + s·b
  read    // a
};
const char* name(MemoryPass pass);
int arrays_of(MemoryPass pass);
// [B/s] over arrays of `array` bytes, divided among the cores.
Spread memory_rate(MemoryPass pass, int64_t array, const CoreRun& run);
// [B/s] of the first write into each page of fresh memory, which the system must find and clear.
Spread first_touch_rate(int64_t bytes, const CoreRun& run);

// [s] Half of a round trip of one word between two cores. The waiting thread spins, or it sleeps
// and must be woken.
Spread spinning_latency(int samples, int rounds);
Spread sleeping_latency(int samples, int rounds);

int64_t cache_bytes(int level);  // [B] of level 2 or 3; 0 if the system does not say

}  // namespace zl::cli
