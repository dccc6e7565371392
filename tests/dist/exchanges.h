// What two ranks exchange while others take part or not, on every transport, by closed forms.
#pragma once

#include <string>
#include <vector>

#include "tests/dist/ranks.h"

namespace zl::test {

inline float last(const Tensor& t) { return contents<float>(t).back(); }

// Tensors go around the ring, `step` ranks at a time.
inline bool right_around_ring(Rank& rank, int step) {
  const int n = rank.comm.size(), r = rank.comm.rank();
  Tensor mine = rank.filled(1000, float(r)), other = rank.empty(1000);
  bool right = true;
  for (int i = 1; i <= n; ++i) {
    Work sent = rank.comm.send(mine, (r + step + n) % n, kName);
    rank.comm.receive(other, (r - step + n) % n, kName).wait();
    sent.wait();
    std::swap(mine, other);
    right = right && last(mine) == float(((r - step * i) % n + n) % n);
  }
  return right;
}

// Both neighbours of a rank may send first; it waits in one of four orders, and for a sum last.
inline bool right_in_any_order(Rank& rank, int order) {
  const int n = rank.comm.size(), r = rank.comm.rank(), next = (r + 1) % n,
            before = (r + n - 1) % n;
  const Tensor out = rank.filled(500, float(r)), in = rank.empty(500), sum = rank.filled(5, 1);
  Work first = order & 1 ? rank.comm.receive(in, before, kName) : rank.comm.send(out, next, kName);
  Work reduced = rank.comm.all_reduce(sum, Reduction::sum, kName);
  Work second = order & 1 ? rank.comm.send(out, next, kName) : rank.comm.receive(in, before, kName);
  (order & 2 ? second : first).wait();
  (order & 2 ? first : second).wait();
  reduced.wait();
  return last(in) == float(before) && last(sum) == float(n);
}

// Rank 0 sends rank 2 ten tensors, around a collective or not.
inline bool right_in_their_order(Rank& rank, bool between) {
  std::vector<Work> works;
  std::vector<Tensor> tensors;
  const int r = rank.comm.rank();
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(rank.filled(7, r == 0 ? float(i) : -1));
    const CallName name{i % 2 ? "odd" : "even", Purpose::check};
    if (r == 0) works.push_back(rank.comm.send(tensors.back(), 2, name));
    if (r == 2) works.push_back(rank.comm.receive(tensors.back(), 0, name));
    if (i == 4 && between) rank.comm.all_reduce(rank.filled(20, 1), Reduction::sum, kName).wait();
  }
  for (Work& work : works) work.wait();
  bool right = true;
  for (int i = 0; i < 10; ++i)
    right = right && last(tensors[size_t(i)]) == float(r == 0 || r == 2 ? i : -1);
  return right;
}

// Rank 0 waits for a send to rank 1, then for one to rank 2, while these two have posted theirs.
inline bool right_beside_posted(Rank& rank) {
  const int r = rank.comm.rank();
  const Tensor a = rank.filled(100, float(r)), b = rank.filled(100, 5);
  std::vector<Work> works;
  if (r == 1) works.push_back(rank.comm.receive(a, 0, kName));
  if (r == 1) works.push_back(rank.comm.send(b, 2, kName));
  if (r == 2) works.push_back(rank.comm.receive(b, 0, kName));
  if (r == 2) works.push_back(rank.comm.receive(a, 1, kName));
  (void)rank.comm.all_gather_object("", "posted");
  for (const int to : {1, 2})
    if (r == 0) rank.comm.send(a, to, kName).wait();
  for (Work& work : works) work.wait();
  return r == 2 ? last(a) == 5 && last(b) == 0 : r > 2 || (last(a) == 0 && last(b) == 5);
}

// The names of the exchanges whose result is wrong on this rank.
inline std::string wrong_in_exchanges(Rank& rank) {
  std::string wrong;
  for (const int step : {1, -1})
    if (!right_around_ring(rank, step)) wrong += "ring ";
  for (const int order : {0, 1, 2, 3})
    if (!right_in_any_order(rank, order)) wrong += "order of waits ";
  if (rank.comm.size() < 3) return wrong;
  for (const bool between : {false, true})
    if (!right_in_their_order(rank, between)) wrong += "order of sends ";
  if (!right_beside_posted(rank)) wrong += "posted ";
  return wrong;
}

}  // namespace zl::test
