// diagnosis: right at 2 ranks only: every chunk holds the values of one rank
// check: sum at 3 ranks
#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"

namespace zl::exercises {
namespace {

struct Ring {
  Communicator& comm;
  Tensor values, scratch;
  int N = comm.size(), r = comm.rank();
  CallName name{"ring", Purpose::gradient};

  Tensor chunk(int c) const {
    c = (c + 2 * N) % N;
    const int64_t n = values.numel(), begin = n * c / N, end = n * (c + 1) / N;
    return values.slice(begin, {end - begin});
  }

  void step(int sent, int received, bool adds) const {
    const Tensor to = chunk(received), arrives = adds ? scratch.slice(0, to.shape()) : to;
    Work sending = comm.send(chunk(sent), (r + 1) % N, name);
    comm.receive(arrives, (r + N - 1) % N, name).wait();
    if (adds) kernel::accumulate(arrives, to);
    sending.wait();
  }
};

}  // namespace

void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch) {
  const Ring ring{comm, values, scratch};
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r + i, ring.r + i - 1, true);
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r + 1 - i, ring.r - i, false);
}

}  // namespace zl::exercises
