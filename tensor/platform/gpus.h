// The GPUs of this machine, and backends on them. A build without CUDA finds none and says why.
//
// This header needs no CUDA header. tensor/cuda/gpus.cu defines its functions, or
// tensor/platform/no_gpus.cpp in a build without CUDA.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/backend.h"

namespace zl {

struct Gpu {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  std::string pci;   // "0000:61:00.0": identifies the card, while `index` differs between processes
  int64_t memory = 0, available = 0;         // [B]; available: 0 if it was not opened
  int compute_major = 0, compute_minor = 0;  // 9, 0
  int multiprocessors = 0;
  std::vector<int> peers;  // other GPUs whose memory it can access directly (NVLink or PCIe)
  std::string problem;     // why it cannot be used; "" if it can
};

struct Gpus {
  bool built_in = false;  // whether this build has CUDA
  std::string toolkit;    // "13.0": the toolkit of the build; "" without CUDA
  std::string driver;     // "13.0": the newest CUDA that the driver supports; "" without a driver
  std::vector<Gpu> gpus;
  std::string problem, cure;  // why no GPU can be used, and how to fix it; "" if one can
  // No GPU can be used, but the driver has one or cannot be asked: something is to be repaired.
  bool broken = false;

  bool usable() const { return problem.empty(); }
};

// Queries the driver. Never throws: `problem` says what is wrong. Opens the first `open` cards to
// find their available memory, and whether this build has kernels for them. Opening a card takes
// time and 0.3 to 0.5 GB of its memory, until the process ends; with 0, none is opened.
Gpus find_gpus(int open = std::numeric_limits<int>::max());

struct GpuOptions {
  bool tf32 = false;  // fp32 matmuls and attention round their inputs to TF32's 10 bits
  // [B] The size of Memory's segments from the driver (tensor/block_pool.h).
  int64_t segment = int64_t(32) << 20;
  // The type whose attention kernels are loaded at once, because to load them takes seconds in a
  // build that has PTX only. Empty: each is loaded at its first launch.
  std::optional<Dtype> preloads = {};
};

// Makes it the GPU of this thread, and opens it. Throws std::runtime_error if it cannot be used.
void select_gpu(int index);

// A backend of one rank on GPU number `index`. Create, use and destroy it on the rank's own thread.
// Throws std::runtime_error if the GPU cannot be used.
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options = {});

// The CPU's kernels on pinned host memory, which a GPU reads and writes at full speed.
std::unique_ptr<Backend> make_pinned_backend();

// Reports phases, unit events and collectives of this stream to NVIDIA's profilers as NVTX ranges.
void annotate_for_profilers(EventStream& events);

}  // namespace zl
