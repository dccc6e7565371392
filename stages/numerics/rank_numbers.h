// Numbers of each rank, gathered on the device and read by the host later.
#pragma once

#include <span>
#include <vector>

#include "dist/communicator.h"
#include "tensor/kernels.h"

namespace zl {

class RankNumbers {
 public:
  // Starts the all-gather of this rank's numbers, of which every rank has the same count. Every
  // rank must make it. `mine` may be changed when the constructor has returned. A dry run's numbers
  // are all 0.
  RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name);  // (n) f64
  RankNumbers(Communicator& comm, Memory& memory, std::span<const double> mine, CallName name);
  RankNumbers(Communicator& comm, Memory& memory, double mine, CallName name);
  RankNumbers() = default;  // none

  // Starts the copy to the host and frees the numbers on the device; waits for the all-gather.
  void start_download();
  const std::vector<double>& wait();  // by rank
  double wait_for_sum();              // added in rank order: the same bits on every rank

 private:
  Tensor all_;     // (ranks * n) f64, until the copy has started
  Work gathered_;  // behind all_, so that it is destroyed first
  kernel::Download numbers_;
};

// The sum of one number per rank. Every rank must call it; waits.
double sum_over_ranks(Communicator& comm, Memory& memory, double mine, CallName name);

}  // namespace zl
