// One call of each kind, on values that are known to every rank, and what it must leave: the
// reference for all transports.
#pragma once

#include <string>

#include "tests/dist/ranks.h"

namespace zl::test {

struct Step {
  Collective kind;
  int64_t slice = 0;  // [n] of each rank; the tensor has as many of these as there are ranks
  int root = 0;
  Reduction reduction = Reduction::sum;
  int64_t seed = 7;
  int64_t more = 0;  // [n] behind the slices, where the kind needs none
};

inline bool needs_slices(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::all_gather ||
         kind == Collective::all_to_all;
}

// What a rank holds at element i after the step. Sums are in fp32 (f64: fp64, integers: exact), in
// rank order, with one division and one rounding.
template <class T>
T expected(const Step& step, int rank, int ranks, int64_t i) {
  const auto at = [&](int r, int64_t j) { return as<T>(value(step.seed, r, j)); };
  const int owner = int(i / std::max<int64_t>(step.slice, 1));
  if (step.kind == Collective::all_gather) return at(owner, i);
  if (step.kind == Collective::broadcast) return at(step.root, i);
  if (step.kind == Collective::all_to_all) return at(owner, rank * step.slice + i % step.slice);
  if (step.kind == Collective::barrier) return at(rank, i);
  if (step.kind == Collective::send) return at((rank + ranks - 1) % ranks, i);  // left neighbour's
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, int64_t, Compute<T>>;
  Sum sum = Sum(at(0, i));
  for (int r = 1; r < ranks; ++r) sum += Sum(at(r, i));
  return T(step.reduction == Reduction::mean ? sum / Sum(ranks) : sum);
}

// Returns whether the call left what it must on this rank.
template <class T>
bool take(const Step& step, Rank& rank) {
  Communicator& comm = rank.comm;
  const int n = comm.size(), r = comm.rank();
  const int64_t count = step.slice * n + step.more;
  const std::vector<T> own = values<T>(step.seed, r, count);
  const Tensor t = rank.tensor(own);
  const bool two = step.kind == Collective::all_to_all || step.kind == Collective::send;
  const Tensor result = two ? rank.empty(count, dtype_of<T>) : t;
  switch (step.kind) {
    case Collective::all_reduce: comm.all_reduce(t, step.reduction, kName).wait(); break;
    case Collective::reduce_scatter: comm.reduce_scatter(t, step.reduction, kName).wait(); break;
    case Collective::all_gather: comm.all_gather(t, kName).wait(); break;
    case Collective::broadcast: comm.broadcast(t, step.root, kName).wait(); break;
    case Collective::all_to_all: comm.all_to_all(t, result, kName).wait(); break;
    case Collective::barrier: comm.barrier(kName).wait(); break;
    default:
      Work sent = comm.send(t, (r + 1) % n, kName),
           received = comm.receive(result, (r + n - 1) % n, kName);
      (step.seed % 2 ? sent : received).wait();
      (step.seed % 2 ? received : sent).wait();
  }
  if (two && !same_bits(contents<T>(t), own)) return false;
  const std::vector<T> data = contents<T>(result);
  for (int64_t i = 0; i < count; ++i) {
    // All else that a reduce_scatter leaves is not specified.
    if (step.kind == Collective::reduce_scatter && i / step.slice != r) continue;
    const T e = expected<T>(step, r, n, i);
    if (std::memcmp(&e, &data[size_t(i)], sizeof(T)) != 0) return false;
  }
  return true;
}

// Every kind, reduction and root with awkward counts, the largest of about `most` elements. The
// steps that are wrong on this rank.
template <class T>
std::string wrong_steps(Rank& rank, int64_t most) {
  const int n = rank.comm.size();
  std::string wrong;
  const auto check = [&](const Step& step) {
    if (!take<T>(step, rank))
      wrong += str(name(step.kind), " of ", step.slice * n + step.more, ", ", name(step.reduction),
                   ", root ", step.root, "; ");
  };
  for (const Collective kind :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::all_to_all})
    for (const int64_t slice : {0, 1, n - 1, n, n + 1, 101, int(most) / n})
      for (const auto& [more, root] :
           {std::pair(0, 0), std::pair(1, n / 2), std::pair(n - 1, n - 1)})
        for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
          const bool sums = kind <= Collective::reduce_scatter;
          if (reduction == Reduction::mean && (!sums || std::is_same_v<T, int32_t>)) continue;
          if (more == 0 || !needs_slices(kind)) check({kind, slice, root, reduction, 7, more});
        }
  return wrong;
}

}  // namespace zl::test
