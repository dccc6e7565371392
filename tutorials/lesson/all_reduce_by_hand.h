// An all-reduce in four ways, written from send and receive: what lesson 04 measures.
#pragma once

#include <bit>
#include <functional>
#include <vector>

#include "dist/communicator.h"
#include "tensor/kernels.h"

namespace zl::lesson {

// One rank's side: `values` (n) are its own at first, and the sum of all ranks' in the end. n may
// be any number.
struct AllReduce {
  Communicator& comm;
  Tensor values, scratch;              // (n) each
  std::function<void()> after_step{};  // of the ring
  int N = comm.size(), r = comm.rank();
  CallName name{"by hand", Purpose::gradient};

  Tensor chunk(int c) const {  // one of N, nearly equal; c counts modulo N
    c = (c + 2 * N) % N;
    const int64_t begin = values.numel() * c / N, end = values.numel() * (c + 1) / N;
    return values.slice(begin, {end - begin});
  }
  void send(const Tensor& part, int to) { comm.send(part, to, name).wait(); }
  void receive(const Tensor& part, int from) { comm.receive(part, from, name).wait(); }
  void add(const Tensor& part, int from) {  // part += what comes
    const Tensor arrived = scratch.slice(0, part.shape());
    receive(arrived, from);
    kernel::accumulate(arrived, part);
  }
  // The ways, and the bytes that this rank sends on each.
  void library() { comm.all_reduce(values, Reduction::sum, name).wait(); }
  int64_t by_library() const { return 2 * (N - 1) * values.bytes() / N; }
  void root() {  // everything to rank 0, which adds in rank order, and back
    for (int other = 1; r == 0 && other < N; ++other) add(values, other);
    for (int other = 1; r == 0 && other < N; ++other) send(values, other);
    if (r > 0) send(values, 0), receive(values, 0);
  }
  int64_t by_root() const { return values.bytes() * (r == 0 ? N - 1 : 1); }
  void tree() {  // a rank's parent is its number without the lowest bit; sums go up, the whole sum
                 // comes down
    int d = 1;
    for (; d < N && r % (2 * d) == 0; d *= 2)
      if (r + d < N) add(values, r + d);
    if (r > 0) send(values, r - d), receive(values, r - d);
    while (d /= 2)
      if (r + d < N) send(values, r + d);
  }
  int64_t by_tree() const {
    return values.bytes() * (r == 0 ? std::bit_width(unsigned(N - 1)) : 1);
  }              // at least
  void ring() {  // N-1 steps of reduce-scatter, N-1 of all-gather: a chunk to the next rank, a
                 // chunk from the one before
    for (int step = 0; step < 2 * (N - 1); ++step) {
      Work sent = comm.send(chunk(r - step), (r + 1) % N, name);
      if (step < N - 1)
        add(chunk(r - step - 1), (r + N - 1) % N);
      else
        receive(chunk(r - step - 1), (r + N - 1) % N);
      sent.wait();
      if (after_step) after_step();
    }
  }
  int64_t by_ring() const {
    return 2 * values.bytes() - chunk(r + 1).bytes() - chunk(r + 2).bytes();
  }
  void direct() {  // chunk c to rank c, which adds in rank order and sends the sum to everybody
    const Tensor mine = chunk(r),
                 sum = Tensor::zeros(mine.memory(), MemoryUse::communication, mine.shape());
    std::vector<Work> sent;
    for (int to = 0; to < N; ++to)
      sent.push_back(to == r ? Work() : comm.send(chunk(to), to, name));
    for (int from = 0; from < N; ++from) from == r ? kernel::accumulate(mine, sum) : add(sum, from);
    for (Work& work : sent) work.wait();
    kernel::copy(sum, mine);
    for (int to = 0; to < N; ++to) sent.push_back(to == r ? Work() : comm.send(mine, to, name));
    for (int from = 0; from < N; ++from) from == r ? void() : receive(chunk(from), from);
    for (Work& work : sent) work.wait();
  }
  int64_t by_direct() const { return values.bytes() + (N - 2) * chunk(r).bytes(); }
};

}  // namespace zl::lesson
