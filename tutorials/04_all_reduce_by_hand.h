// An all-reduce in four ways, written with send and receive: what lesson 04 measures.
#pragma once

#include <bit>
#include <functional>
#include <vector>

#include "dist/communicator.h"
#include "tensor/kernels.h"

namespace zl::lesson {

// One rank's side. `values` (n) are the rank's own at first and the sum over all ranks at the end;
// n may be any number. by_way(): the bytes that this rank sends.
struct AllReduce {
  Communicator& comm;
  Tensor values, scratch;                              // (n) each
  std::function<void(const char* half)> after_step{};  // of the ring
  int N = comm.size(), r = comm.rank();
  CallName name{"by hand", Purpose::gradient};

  Tensor chunk(int c) const {  // one of N, nearly equal; c counts modulo N
    c = (c + 2 * N) % N;
    const int64_t begin = values.numel() * c / N, end = values.numel() * (c + 1) / N;
    return values.slice(begin, {end - begin});
  }
  void send(const Tensor& part, int to) { comm.send(part, to, name).wait(); }
  void receive(const Tensor& part, int from) { comm.receive(part, from, name).wait(); }
  void add(const Tensor& part, int from) {  // part += what `from` sends
    const Tensor received = scratch.slice(0, part.shape());
    receive(received, from);
    kernel::accumulate(received, part);
  }

  void library() { comm.all_reduce(values, Reduction::sum, name).wait(); }
  int64_t by_library() const { return 2 * (N - 1) * values.bytes() / N; }

  void root() {  // rank 0 adds all values in rank order and sends the sum to every rank
    for (int other = 1; r == 0 && other < N; ++other) add(values, other);
    for (int other = 1; r == 0 && other < N; ++other) send(values, other);
    if (r > 0) send(values, 0), receive(values, 0);
  }
  int64_t by_root() const { return values.bytes() * (r == 0 ? N - 1 : 1); }

  void tree() {  // the parent of a rank is its number without the lowest bit that is set
    int d = 1;
    for (; d < N && r % (2 * d) == 0; d *= 2)
      if (r + d < N) add(values, r + d);
    if (r > 0) send(values, r - d), receive(values, r - d);
    while (d /= 2)
      if (r + d < N) send(values, r + d);
  }
  int64_t by_tree() const {  // exact for rank 0, the busiest
    return values.bytes() * (r == 0 ? std::bit_width(unsigned(N - 1)) : 1);
  }

  void ring() {  // each step: send a chunk to the next rank, receive one from the rank before
    const int before = (r + N - 1) % N, next = (r + 1) % N;
    for (int step = 0; step < 2 * (N - 1); ++step) {
      const bool reduces = step < N - 1;
      Work sent = comm.send(chunk(r - step), next, name);
      reduces ? add(chunk(r - step - 1), before) : receive(chunk(r - step - 1), before);
      sent.wait();
      if (after_step) after_step(reduces ? "reduce-scatter step" : "all-gather step");
    }
  }
  int64_t by_ring() const {
    return 2 * values.bytes() - chunk(r + 1).bytes() - chunk(r + 2).bytes();
  }

  void direct() {  // chunk c goes to rank c, which adds in rank order and sends the sum to all
    const Tensor mine = chunk(r);
    const Tensor sum = Tensor::zeros(mine.memory(), MemoryUse::communication, mine.shape());
    std::vector<Work> sent;
    for (int to = 0; to < N; ++to)
      if (to != r) sent.push_back(comm.send(chunk(to), to, name));
    for (int from = 0; from < N; ++from) from == r ? kernel::accumulate(mine, sum) : add(sum, from);
    for (Work& work : sent) work.wait();
    kernel::copy(sum, mine);
    for (int to = 0; to < N; ++to)
      if (to != r) sent.push_back(comm.send(mine, to, name));
    for (int from = 0; from < N; ++from)
      if (from != r) receive(chunk(from), from);
    for (Work& work : sent) work.wait();
  }
  int64_t by_direct() const { return values.bytes() + (N - 2) * chunk(r).bytes(); }
};

}  // namespace zl::lesson
