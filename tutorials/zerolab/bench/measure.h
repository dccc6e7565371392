// How long work takes on a device, and what the device can do at most.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/kernels.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

// Samples of one quantity. Their median is told, as a mean would be moved by one interruption.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> samples);

// One rank's memory on a device, outside of any training: the first GPU, or the CPU. For the thread
// that makes it.
class Workbench {
 public:
  explicit Workbench(const DeviceChoice& device);
  Memory& memory() { return *memory_; }
  Backend& backend() { return memory_->backend(); }

  struct Count {
    int64_t operations = 0, bytes = 0;
  };
  // What the kernel events of `work` add up to.
  Count count(const std::function<void()>& work);
  // [s] of `work`, warm. A sample is as many repetitions as make a millisecond. Throws Interrupted
  // between samples.
  Spread time(const std::function<void()>& work, int samples);

  // Measured limits.
  double copy_rate();  // [B/s] read plus written by a copy far larger than the caches
  double matmul_rate(int64_t n,
                     Dtype dtype);  // [1/s] operations of a product of two n × n matrices
  // [1/s] The most operations that a product of matrices can do: multiply-adds of one core, or a
  // GPU's best large product.
  double operation_rate(Dtype dtype);

 private:
  bool gpu_;
  std::unique_ptr<Backend> made_;  // null: the CPU's
  EventStream events_;
  std::unique_ptr<Memory> memory_;
  Count counted_;
};

}  // namespace zl::cli
