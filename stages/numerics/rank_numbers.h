// One number of each rank, gathered on the device and read by the host later.
#pragma once

#include <vector>

#include "dist/communicator.h"
#include "tensor/kernels.h"

namespace zl {

class RankNumbers {
 public:
  // Starts the all-gather and the copy to the host; does not wait for either on a GPU. Every rank
  // must make it. A dry run's numbers are all `on_meta`.
  RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name,
              double on_meta);  // mine: (1) f64
  RankNumbers(Communicator& comm, Memory& memory, double mine, CallName name);
  RankNumbers() = default;  // none

  const std::vector<double>& wait();  // by rank
  double wait_for_sum();              // added in rank order: the same bits on every rank

 private:
  kernel::Download<double> numbers_;
};

// The sum of one number per rank. Every rank must call it; waits.
double sum_over_ranks(Communicator& comm, Memory& memory, double mine, CallName name);

}  // namespace zl
