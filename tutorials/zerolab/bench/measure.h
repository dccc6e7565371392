// Times work on a device and measures the limits of that device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/kernels.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

inline constexpr int64_t kMiB = int64_t(1) << 20;
inline constexpr int64_t kCpuMatrix = 512;  // n of the n × n matrices that a CPU multiplies

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

std::string short_seconds(double seconds);  // "81 µs", "2.5 ms", "1.2 s"

// One rank's memory on the first GPU or on the CPU, outside of any training. Use it on the thread
// that makes it. All CPU kernels of this process then run on `device.threads` threads.
class Workbench {
 public:
  explicit Workbench(const DeviceChoice& device = {});
  Memory& memory() { return *memory_; }

  struct Count {
    int64_t operations = 0, bytes = 0;
  };
  // The sum over the kernel events of `work`.
  Count count(const std::function<void()>& work);
  // [s] of `work` after a warm-up. One sample repeats `work` for at least a millisecond. Throws
  // Interrupted between samples.
  Spread time(const std::function<void()>& work, int samples);

  Tensor noise(Shape shape, Dtype dtype);                      // random values
  Spread copy_rate(Memory& from, int64_t bytes, int samples);  // [B/s] from there to the device
  // [B/s] read plus written, by copies far larger than the caches: the best sample.
  double copy_rate();
  double matmul_rate(int64_t n, Dtype dtype);  // [FLOP/s] of two n × n matrices
  // [FLOP/s] The peak for a matmul: multiply-adds of a core for each thread, or a GPU's best large
  // matmul.
  double operation_rate(Dtype dtype);

 private:
  bool gpu_;
  int threads_;
  std::unique_ptr<Backend> backend_;  // null on the CPU
  EventStream events_;
  std::unique_ptr<Memory> memory_;
  Count counted_;
};

}  // namespace zl::cli
