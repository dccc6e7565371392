// What the CPU can do at most, measured on one core or on several at the same time: operations, and
// bytes of memory and caches.
#pragma once

#include <string>

#include "tutorials/zerolab/bench/core_threads.h"

namespace zl::cli {

// Registers of the fused multiply-adds that this CPU may have.
enum class VectorWidth { bits_256, bits_512 };
const char* name(VectorWidth width);
bool can_multiply_add(VectorWidth width);

// [1/s] fp32 operations of fused multiply-adds on registers alone.
Spread multiply_add_rate(VectorWidth width, const CoreRun& run);
// The best sample of the width that does most, on one core; 0 if there is no measurement for this
// CPU.
double multiply_add_peak();
// [1/s] fp32 operations of our product of two n × n matrices; each core has its own.
Spread product_rate(int64_t n, const CoreRun& run);

// What is streamed through. Bytes are counted as STREAM does (McCalpin 1995), without lines that a
// cache reads to write them.
enum class MemoryPass {
  copy,   // b = a
  triad,  // c = a + s·b
  read    // a
};
const char* name(MemoryPass stream);
int arrays_of(MemoryPass stream);
// [B/s] over arrays of `array` bytes, shared out among the cores.
Spread stream_rate(MemoryPass stream, int64_t array, const CoreRun& run);
// [B/s] of writing into each page of fresh memory, which the system has to find and to clear first.
Spread first_touch_rate(int64_t bytes, const CoreRun& run);

int64_t cache_bytes(
    int level);  // [B] of the cache of level 2 or 3 that a core sees; 0 if the system does not say
int64_t page_bytes();  // [B]
std::string
huge_pages();  // when the system gives them: "always", "madvise", "never"; "" if it does not say

}  // namespace zl::cli
