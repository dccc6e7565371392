// One of everything in a group of ranks, against closed forms in double. For the tests of all
// engines.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "tests/dist/ranks.h"

namespace zl::test {

using Colors = std::vector<int>;

// Groups of unequal sizes, 2 x 3 and 3 x 2 ranks, interleaved, of one, and of all.
inline const std::vector<Colors> kColors = {
    {0, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2}, {7, -3, 5}, {1, 1, 1}};

inline std::vector<int> members_of(const Colors& colors, int rank) {
  std::vector<int> members;
  for (int r = 0; r < int(colors.size()); ++r)
    if (colors[size_t(r)] == colors[size_t(rank)]) members.push_back(r);
  return members;
}

// Sums of these and their means over 1, 2, 3, 4 and 6 ranks are exact in fp32.
inline double given(int rank_of_run, int64_t i) {
  return 12.0 * (rank_of_run + 1) * double(i % 5 + 1);
}

// The names of the calls whose result is wrong; "" if all are right. `members`: in the run.
inline std::string wrong_in_group(Communicator& group, Rank& rank,
                                  const std::vector<int>& members) {
  constexpr int64_t n = 60;
  const int me = group.rank(), size = group.size();
  const int64_t shard = n / size;
  const int of_run = int(group.events().rank());
  std::vector<float> mine;
  for (int64_t i = 0; i < n; ++i) mine.push_back(float(given(of_run, i)));
  std::string wrong = size == int(members.size()) ? "" : "size ";
  const auto check = [&](const char* what, const Tensor& t, int64_t begin, int64_t end,
                         const auto& expected) {
    const std::vector<float> found = contents<float>(t);
    for (int64_t i = begin; i < end; ++i)
      if (double(found[size_t(i)]) != expected(i)) {
        wrong += std::string(what) + " ";
        return;
      }
  };
  const auto sum = [&](int64_t i) {
    return std::accumulate(members.begin(), members.end(), 0.0,
                           [&](double s, int r) { return s + given(r, i); });
  };
  const auto of = [&](int64_t member) { return members[size_t(member)]; };
  Tensor t = rank.tensor(mine);
  group.all_reduce(t, Reduction::sum, {"a", Purpose::check}).wait();
  check("all_reduce", t, 0, n, sum);
  t = rank.tensor(mine);
  group.reduce_scatter(t, Reduction::mean, {"b", Purpose::check}).wait();
  check("reduce_scatter", t, me * shard, (me + 1) * shard,
        [&](int64_t i) { return sum(i) / size; });
  t = rank.tensor(mine);
  group.all_gather(t, {"c", Purpose::check}).wait();
  check("all_gather", t, 0, n, [&](int64_t i) { return given(of(i / shard), i); });
  t = rank.tensor(mine);
  group.broadcast(t, size - 1, {"d", Purpose::check}).wait();
  check("broadcast", t, 0, n, [&](int64_t i) { return given(of(size - 1), i); });
  t = rank.tensor(mine);
  const Tensor to = rank.filled(n, -1);
  group.all_to_all(t, to, {"e", Purpose::check}).wait();
  check("all_to_all", to, 0, n,
        [&](int64_t i) { return given(of(i / shard), me * shard + i % shard); });
  if (size > 1) {
    const int next = (me + 1) % size, last = (me + size - 1) % size;
    Work sent = group.send(t, next, {"f", Purpose::check}),
         got = group.receive(to, last, {"f", Purpose::check});
    got.wait();
    sent.wait();
    check("receive", to, 0, n, [&](int64_t i) { return given(of(last), i); });
  }
  group.barrier({"g", Purpose::check}).wait();
  const std::vector<std::string> texts = group.all_gather_object(std::to_string(of_run), "ranks");
  for (int r = 0; r < size; ++r)
    if (texts.at(size_t(r)) != std::to_string(of(r))) wrong += "object ";
  return wrong;
}

}  // namespace zl::test
