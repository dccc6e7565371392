// The limits of this machine: peak FLOP/s and memory bandwidth of cores and GPUs, and a disk.
// All functions throw Interrupted between samples.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

inline constexpr int64_t kMiB = int64_t(1) << 20;

// Samples of one quantity. Reports use the median, because one interruption would move a mean.
// The lower quartile is for short steps, which other programs can only make longer.
struct Spread {
  double median = 0, min = 0, max = 0, quartile = 0;
};
Spread spread_of(std::vector<double> samples);

// How nlohmann-json writes a Spread.
template <class Json>
void to_json(Json& json, const Spread& s) {
  json = {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

// On a CPU the next four are of this process's compute threads together.

// [FLOP/s] Of our matmul of two n × n matrices.
Spread matmul_rate(const DeviceChoice& device, int64_t n, Dtype dtype = Dtype::f32);
// [FLOP/s] The best of some matmuls, a limit of kernels.
double operation_rate(const DeviceChoice& device, Dtype dtype);

// [B/s] Of a copy of so many bytes in the device's memory, or to it from pinned memory of the host.
Spread copy_rate(const DeviceChoice& device, int64_t bytes, bool from_host = false);
// [B/s] Read plus written by the best of large copies: the other limit. A line of the cache that is
// read only because it will be written does not count, as in STREAM (McCalpin 1995).
double copy_rate(const DeviceChoice& device);

// [B/s] of a file of `bytes`, as 'offload_optimizer' to nvme writes and reads it: medians.
struct DiskRates {
  std::string method;  // "waits for the device"
  double write, read;
};
DiskRates disk_rates(const std::string& folder, int64_t bytes);

}  // namespace zl::cli
