// What a test sets and reads of the emulated GPUs.
//
// Programs on the emulator (zerolab_on_emulator) take the same from environment variables:
// ZEROLAB_EMULATED_GPUS, _ERROR, _DIES_AFTER and _LOAD_MS are numbers, ZEROLAB_EMULATED_OCCUPIED
// and _FULL are lists such as 0,2.
#pragma once

#include <cstdint>
#include <set>

namespace zl::cuda_on_cpu {

// The GPUs of a machine, and its faults.
struct Machine {
  // GPUs 0 and 1 cannot access each other's memory. 2 and 3 can. 4 and 5 say that they can, but
  // what one reads from the other is zero, and what it writes there is lost: so it is where the
  // IOMMU or PCIe's ACS redirects the accesses (NCCL's guide, "PCI Access Control Services").
  int gpus = 2;
  // A code of driver_types.h. Those about code (98, 209, 218, 221, 222, 223) are returned by what
  // loads a kernel, others (35, 100, 802, 803, 804) by cudaGetDeviceCount. 0: none.
  int error = 0;
  // [n] The kernel that accesses an illegal address: from then on all calls return 700. 0: none.
  int dies_after = 0;
  std::set<int> occupied = {};  // in cudaComputeModeExclusiveProcess, and another process has it
  std::set<int> full = {};      // other programs leave 1/8 of the memory free
  int load_ms = 0;              // that it takes to load a kernel
  int ptx_version = 80;         // that cudaFuncGetAttributes reports for all kernels
};

// Replaces the emulated machine by `machine` until the object is destroyed. Its kernels are not
// loaded, it has no contexts, and all counts are 0. One at a time; no other thread uses the GPUs
// meanwhile.
class EmulatedMachine {
 public:
  explicit EmulatedMachine(const Machine& machine);
  ~EmulatedMachine();
  EmulatedMachine(const EmulatedMachine&) = delete;
};

bool has_context(int gpu);  // it takes 0.3 to 0.5 GB of a real GPU's memory
int64_t loaded_kernels();   // (GPU, kernel)
int64_t staged_copies();    // copies between two GPUs that went through the host

}  // namespace zl::cuda_on_cpu
