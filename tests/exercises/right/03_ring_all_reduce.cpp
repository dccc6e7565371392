// Exercise 03: a ring all-reduce. task.md has the question, ring_all_reduce.h the contract.
#include <stdexcept>

#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"

namespace zl::exercises {
namespace {

// What one rank knows of the ring.
struct Ring {
  Communicator& comm;
  Tensor values, scratch;
  int N = comm.size(), r = comm.rank();
  CallName name{"ring", Purpose::gradient};

  // The part of values that is chunk c, in the same memory. c may be any number: it counts modulo
  // N.
  Tensor chunk(int c) const {
    //> throw std::logic_error("not written yet: chunk");
    c = (c + 2 * N) % N;
    const int64_t n = values.numel(), begin = n * c / N, end = n * (c + 1) / N;
    return values.slice(begin, {end - begin});
    //<
  }

  // One step of a half: sends chunk `sent` to the next rank, while chunk `received` comes from the
  // rank before. With `adds` it is added to the values, otherwise it replaces them.
  void step(int sent, int received, bool adds) const {
    //> throw std::logic_error("not written yet: a step: send a chunk, receive another one");
    const Tensor to = chunk(received), arrives = adds ? scratch.slice(0, to.shape()) : to;
    Work sending = comm.send(chunk(sent), (r + 1) % N, name);
    comm.receive(arrives, (r + N - 1) % N, name).wait();
    if (adds) kernel::accumulate(arrives, to);
    sending.wait();
    //<
  }
};

}  // namespace

// N - 1 steps that add: then each rank has the sum in one chunk. N - 1 steps that replace: the sums
// go around the ring.
void ring_all_reduce(Communicator& comm, const Tensor& values, const Tensor& scratch) {
  const Ring ring{comm, values, scratch};
  //> throw std::logic_error("not written yet: which chunk does rank r send in step 0, 1, …?");
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r - i, ring.r - i - 1, true);
  for (int i = 0; i < ring.N - 1; ++i) ring.step(ring.r + 1 - i, ring.r - i, false);
  //<
}

}  // namespace zl::exercises
