// diagnosis: values are kept in memory of new
// check: memory
// Right sums, with memory that no ledger sees.
#include <vector>

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
    std::vector<float> whole(values.data<float>().begin(), values.data<float>().end());
    std::vector<std::vector<float>> history(50, whole);
    const Tensor to = chunk(received), arrives = adds ? scratch.slice(0, to.shape()) : to;
    Work sending = comm.send(chunk(sent), (r + 1) % N, name);
    comm.receive(arrives, (r + N - 1) % N, name).wait();
    if (adds) kernel::accumulate(arrives, to);
    sending.wait();
    if (history[3].size() != whole.size()) throw 1;
  }
};
}  // namespace
void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch) {
  const Ring ring{comm, values, scratch};
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r - i, ring.r - i - 1, true);
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r + 1 - i, ring.r - i, false);
}
}  // namespace zl::exercises
