// diagnosis: only rank 0 has the sum
// check: sum at 2 ranks
#include <algorithm>

#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"

namespace zl::exercises {

void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch) {
  const int N = comm.size(), r = comm.rank();
  const CallName name{"ring", Purpose::gradient};
  for (int64_t begin = 0; begin < values.numel(); begin += scratch.numel()) {
    const Tensor part = values.slice(begin, {std::min(scratch.numel(), values.numel() - begin)});
    const Tensor arrives = scratch.slice(0, part.shape());
    for (int other = 1; r == 0 && other < N; ++other) {
      comm.receive(arrives, other, name).wait();
      kernel::accumulate(arrives, part);
    }
    if (r > 0) comm.send(part, 0, name).wait();
  }
}

}  // namespace zl::exercises
