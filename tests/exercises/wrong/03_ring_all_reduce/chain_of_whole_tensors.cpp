// diagnosis: messages carry all n values
// check: bytes sent
#include <algorithm>

#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"

namespace zl::exercises {

void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch) {
  const int N = comm.size(), r = comm.rank();
  const CallName name{"ring", Purpose::gradient};
  // The sums go from rank 0 to rank N - 1, and the result from there around to rank N - 2.
  const int before = (r + N - 1) % N, next = (r + 1) % N;
  require(scratch.numel() >= values.numel() / N, "scratch is too small");
  if (r > 0) {
    const Tensor arrives = Tensor::empty(values.memory(), MemoryUse::communication, values.shape());
    comm.receive(arrives, before, name).wait();
    kernel::accumulate(arrives, values);
  }
  if (N > 1 && r < N - 1) {
    comm.send(values, next, name).wait();
    comm.receive(values, before, name).wait();
  }
  if (N > 1 && r != N - 2) comm.send(values, next, name).wait();
}

}  // namespace zl::exercises
