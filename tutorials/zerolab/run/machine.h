// What this machine is. What it can do is measured in machine_rates.h.
#pragma once

#include <cstdint>
#include <string>

namespace zl::cli {

// The instructions that this program's kernels were compiled for and this CPU lacks, such as "AVX2
// and FMA"; "" if none.
std::string missing_instructions();

std::string cpu_model();     // as /proc/cpuinfo has it, or "unknown"
int usable_cores();          // that this process may run on
int64_t total_memory();      // [B]; of the container where that is less
int64_t available_memory();  // [B]; 0 if the system does not say
int64_t shared_memory();     // [B] what /dev/shm may hold; 0 if it is missing
std::string nccl_version();  // "2.28.9" of the library, which it opens; "" if there is none
std::string compiler();      // "g++ 12.2.0"
bool optimised_build();

}  // namespace zl::cli
