// This machine's hardware, memory and build.
#pragma once

#include <cstdint>
#include <string>

namespace zl::cli {

// Whether this CPU has the instructions that the kernels were compiled for.
bool has_instructions();

std::string cpu_model();     // from /proc/cpuinfo, or "unknown"
int usable_cores();          // cores that this process may run on
int64_t total_memory();      // [B]; the container's where that is less
int64_t available_memory();  // [B]; 0 if the system does not say
int64_t shared_memory();     // [B] capacity of /dev/shm; 0 if it is missing
std::string nccl_version();  // "2.28.9" of the library, which is opened; "" if there is none
std::string compiler();      // "g++ 12.2.0"
bool optimised_build();

}  // namespace zl::cli
