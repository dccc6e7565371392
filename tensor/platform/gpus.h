// The GPUs of this machine, and backends on them. A build without CUDA finds none and says why.
//
// No header of CUDA is needed to use this one. tensor/cuda/gpus.cu defines it, or
// tensor/platform/no_gpus.cpp where CUDA is not built.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tensor/backend.h"

namespace zl {

struct Gpu {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  std::string pci;   // "0000:61:00.0": which card it is, whatever number a process sees it under
  int64_t memory = 0, available = 0;         // [B]; available: 0 if it was not opened
  int compute_major = 0, compute_minor = 0;  // 9, 0
  int multiprocessors = 0;
  std::vector<int>
      peers;            // the other GPUs whose memory it reads and writes directly (NVLink or PCIe)
  std::string problem;  // why it cannot be used; "" if it can
};

struct Gpus {
  bool built_in = false;  // whether this program has CUDA in it
  std::string toolkit;    // "13.0": what it was built with; "" without CUDA
  std::string driver;     // "13.0": the newest CUDA that the driver runs; "" if there is no driver
  std::vector<Gpu> gpus;
  std::string problem, cure;  // why no GPU can be used and what to do; "" if one can

  bool usable() const { return problem.empty(); }
};

// Asks the driver. Never throws: what is wrong is said in `problem`. The first `open` cards are
// opened, which takes a moment and some of their memory: only then is it known what they have
// available, and whether this program has kernels for them.
Gpus find_gpus(int open = std::numeric_limits<int>::max());

struct GpuOptions {
  bool tf32 = false;  // products of fp32 matrices round their inputs to TF32's 10 bits
  int64_t segment =
      int64_t(32)
      << 20;  // [B] What the pool takes from the driver at a time (tensor/cuda/device_pool.h).
};

// A backend on GPU number `index`, for one rank, to be made, used and destroyed on that rank's own
// thread. Throws std::runtime_error if that GPU cannot be used.
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options = {});

// The CPU's kernels on host memory that stays in its pages, which a GPU copies from and to at full
// speed.
std::unique_ptr<Backend> make_pinned_backend();

// Ranges for NVIDIA's profilers (NVTX): one per phase, unit event and collective, as they come on
// this rank's stream.
void annotate_for_profilers(EventStream& events);

}  // namespace zl
