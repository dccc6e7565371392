// The limits of this machine: peak FLOP/s and memory bandwidth of cores and GPUs, and a disk.
// All functions throw Interrupted between samples.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

inline constexpr int64_t kMiB = int64_t(1) << 20;
inline constexpr int kCpuMatrix = 512;  // n of the n × n matrices that a CPU multiplies

// Samples of one quantity. Reports use the median, because one interruption would move a mean.
struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> samples);

// How nlohmann-json writes a Spread.
template <class Json>
void to_json(Json& json, const Spread& s) {
  json = {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

// How a rate is measured: on one core, on several at the same time, or on a GPU.
struct CoreRun {
  int64_t cores = 1;  // one thread on each
  int64_t samples = 7;
  double seconds = 0.02;  // [s] at least per sample
};

// [FLOP/s] The best sample of our matmul of two n × n matrices; each core has its own matrices.
double matmul_rate(int64_t n, const CoreRun& run, const DeviceChoice& device = {},
                   Dtype dtype = Dtype::f32);

// [B/s] of b = a over two arrays of `array` bytes, divided among the cores. Bytes are counted as
// STREAM does (McCalpin 1995): a cache line that is read only because it will be written does not
// count.
Spread memory_rate(int64_t array, const CoreRun& run);
// [B/s] copied to a GPU, from its own memory or from pinned memory of the host.
Spread gpu_copy_rate(const DeviceChoice& gpu, bool from_host, int64_t bytes, const CoreRun& run);

// The limits of one rank's kernels. [FLOP/s] the best of some matmuls, of a GPU or on a core for
// each thread; [B/s] read plus written by large copies.
double operation_rate(const DeviceChoice& device, Dtype dtype);
double copy_rate(const DeviceChoice& device);

// [B/s] of a file of `bytes`, as 'offload_optimizer' to nvme writes and reads it, in turn: medians.
struct DiskRates {
  std::string method;  // "waits for the device"
  double write, read;
};
DiskRates disk_rates(const std::string& folder, int64_t bytes, int64_t samples);

}  // namespace zl::cli
