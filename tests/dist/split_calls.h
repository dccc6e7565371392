// What groups of ranks do on every transport: one of everything against closed forms in double,
// calls of several groups at once, and how failures in one group end all ranks.
#pragma once

#include <numeric>
#include <string>
#include <thread>
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
// `sends`: the transport has send and receive.
inline std::string wrong_in_group(Communicator& group, Rank& rank, const std::vector<int>& members,
                                  bool sends) {
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
  if (sends && size > 1) {
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

// "" if the calls of a group are right, and would be wrong with the members of another (the twin).
inline std::string wrong_in_split(Communicator& comm, Rank& rank, const Colors& colors,
                                  bool sends = true) {
  const auto group = comm.split(colors, "intra");
  std::vector<int> members = members_of(colors, comm.rank());
  const std::string wrong = wrong_in_group(*group, rank, members, sends);
  for (int& member : members) member = (member + 1) % (comm.size() + 1);
  return wrong +
         (wrong_in_group(*group, rank, members, sends).empty() ? "others' are right too" : "");
}

// Neighbours are in a group, and those of one number in another; all have calls in flight at once.
// Each rank waits in another order. The names of the calls whose result is wrong.
inline std::string wrong_in_flight(Communicator& comm, Rank& rank, int64_t count) {
  Colors pairs, strides;
  for (int r = 0; r < comm.size(); ++r) pairs.push_back(r / 2), strides.push_back(r % 2);
  const auto intra = comm.split(pairs, "intra"), inter = comm.split(strides, "inter");
  const auto sum = [](const std::vector<int>& members) {
    float sum = 0;
    for (const int r : members) sum += float(1 << r);
    return sum;
  };
  const auto in_pair = members_of(pairs, comm.rank()), in_stride = members_of(strides, comm.rank());
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(rank.filled(2 * count, float(1 << comm.rank())));
  std::vector<Work> works(4);
  works[0] = intra->all_reduce(tensors[0], Reduction::sum, kName);
  works[1] = inter->all_reduce(tensors[1], Reduction::mean, kName);
  works[2] = comm.all_reduce(tensors[2], Reduction::sum, kName);
  works[3] = intra->reduce_scatter(tensors[3], Reduction::sum, kName);
  for (int i = 0; i < 4; ++i) works[size_t(i + comm.rank()) % 4].wait();
  const float expected[] = {sum(in_pair), sum(in_stride) / float(in_stride.size()),
                            float((1 << comm.size()) - 1), sum(in_pair)};
  std::string wrong;
  for (size_t i = 0; i < 4; ++i) {
    const size_t shard = size_t(2 * count / intra->size()) * size_t(intra->rank());
    if (contents<float>(tensors[i])[i == 3 ? shard : size_t(2 * count) - 1] != expected[i])
      wrong += std::to_string(i) + " ";
  }
  return wrong;
}

// A program of four ranks on two nodes, and what is said on each rank.
struct GroupCase {
  using Body =
      std::function<void(Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank)>;
  const char* title;
  Body body;
  std::vector<std::string> says;  // none: it ends well
  bool late = false;              // a rank comes after the timeout
};

// Three times the timeout, which also limits how long ranks may take to connect: under the thread
// sanitizer, beside other tests, that has been over 600 ms.
inline constexpr std::chrono::milliseconds kLate{kThreadSanitizer ? 9000 : 1800};

inline void run_group_case(const GroupCase& one, Rank& rank) {
  const auto intra = rank.comm.split({0, 0, 1, 1}, "intra"),
             inter = rank.comm.split({0, 1, 0, 1}, "inter");
  one.body(rank.comm, *intra, *inter, rank);
  rank.comm.barrier(kName).wait();
}

inline std::vector<GroupCase> group_cases(bool sends = true) {
  const auto mismatch = [](int64_t odd) {
    return [odd](Communicator& comm, Communicator& intra, Communicator&, Rank& r) {
      intra.all_reduce(r.empty(comm.rank() == 3 ? odd : 8), Reduction::sum, kName).wait();
    };
  };
  const auto late = [](bool pair, std::chrono::milliseconds time) {
    return [=](Communicator& comm, Communicator& intra, Communicator&, Rank& r) {
      const Tensor t = r.empty(8);
      if (comm.rank() < 2) return std::this_thread::sleep_for(time / 6);  // wait later
      if (comm.rank() == 2) std::this_thread::sleep_for(time);
      if (!pair) return intra.all_reduce(t, Reduction::sum, kName).wait();
      if (comm.rank() == 2) return intra.send(t, 1, kName).wait();
      intra.receive(t, 0, kName).wait();
    };
  };
  const auto circle = [](bool crosswise) {
    return [=](Communicator& comm, Communicator& intra, Communicator& inter, Rank& r) {
      const Tensor t = r.empty(8);
      const bool swap = crosswise && (comm.rank() == 1 || comm.rank() == 2);
      (swap ? inter : intra).all_reduce(t, Reduction::sum, kName).wait();
      (swap ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
    };
  };
  const std::string call = "all_reduce 'h.1 gradient' of 8 f32 elements (call 1 of group 'int",
                    of_2_and_3 = "(call 1 of group 'intra', ranks 2 and 3)";
  std::vector<GroupCase> cases{
      {"a mismatch",
       mismatch(9),
       {"rank 2 calls " + call + "ra', ranks 2 and 3)",
        "rank 3 calls all_reduce 'h.1 gradient' of 9 f32 elements " + of_2_and_3}},
      {"no mismatch", mismatch(8), {}},
      {"a late rank",
       late(false, kLate),
       {"only 1 of 2 ranks came to " + call + "ra', ranks 2 and 3) within",
        "If rank 2 is only slow"},
       true},
      {"a circle",
       circle(true),
       {"waits in " + call + "ra', ranks ", call + "er', ranks 1 and 3); neither can go on"}},
      {"no circle", circle(false), {}},
      {"a rank in a group and one in all ranks wait for each other",
       [](Communicator& comm, Communicator& intra, Communicator&, Rank& r) {
         if (comm.rank() == 3) intra.all_reduce(r.empty(8), Reduction::sum, kName).wait();
       },
       {"rank 3 waits in all_reduce", "neither can go on"}},
  };
  if (sends) {
    cases.push_back({"a late sender",
                     late(true, kLate),
                     {"rank 2 did not match receive 'h.1 gradient' of 8 f32 elements from rank 2 " +
                          of_2_and_3 + " within",
                      "If rank 2 is only slow"},
                     true});
    cases.push_back({"none is late", late(true, {}), {}});
  }
  return cases;
}

}  // namespace zl::test
