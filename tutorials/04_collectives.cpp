// What does each rank really send? The four all-reduces of tutorials/04_all_reduce_by_hand.h,
// beside the library's.
#include <bit>
#include <cmath>

#include "tensor/random.h"
#include "tutorials/04_all_reduce_by_hand.h"
#include "tutorials/lesson/lesson.h"

using namespace zl;
using namespace zl::lesson;

const struct {
  const char *name, *formula;
  void (AllReduce::*run)();
  int64_t (AllReduce::*sends)() const;
  bool rank_order;  // adds in rank order
} kWays[] = {
    {"library", "2 (N-1)/N n 4 B: the log counts what a ring sends", &AllReduce::library,
     &AllReduce::by_library, true},
    {"root", "(N-1) n 4 B, by rank 0", &AllReduce::root, &AllReduce::by_root, true},
    {"tree", "ceil(log2 N) n 4 B, by rank 0", &AllReduce::tree, &AllReduce::by_tree, false},
    {"ring", "2 (N-1)/N n 4 B if N divides n", &AllReduce::ring, &AllReduce::by_ring, false},
    {"direct", "2 (N-1)/N n 4 B if N divides n", &AllReduce::direct, &AllReduce::by_direct, true}};

struct Seen {                                      // by one rank
  int64_t sent_times_n[5] = {}, expected[5] = {};  // [B]
  double difference[5] = {};                       // largest, to the library's sums
  std::string ring;  // after each step: how many ranks' values are in each chunk
};

void one_rank(Lesson& lesson, Communicator& comm, Seen& seen) {
  Memory memory({DeviceKind::cpu}, lesson.backend(), comm.events());
  std::string chunks;  // of the ring that --step shows
  lesson.recording().watch(comm, memory,
                           {[&] {
                              return std::vector<Row>{{"ring", chunks}};
                            },
                            {"a digit per chunk: how many ranks' values it sums"}});
  const auto make = [&](int64_t n) { return Tensor::zeros(memory, MemoryUse::communication, {n}); };
  AllReduce mine{comm, make(lesson.count("--length")), make(lesson.count("--length"))};
  std::vector<float> reference;
  for (size_t way = 0; way < 5; ++way) {
    comm.events().set_phase(kWays[way].name);
    for (size_t i = 0; float& x : mine.values.data<float>())
      x = float(PhiloxStream{lesson.seed(), uint64_t(mine.r)}.uniform(i++));
    comm.log().clear();
    (mine.*kWays[way].run)();
    for (const auto& [call, traffic] : comm.log().rows())
      seen.sent_times_n[way] += traffic.sent_bytes_times_n;
    seen.expected[way] = (mine.*kWays[way].sends)();
    const auto sums = kernel::download<float>(mine.values);
    if (way == 0) reference = sums;
    for (size_t i = 0; i < sums.size(); ++i)
      seen.difference[way] =
          std::max(seen.difference[way], std::abs(double(sums[i]) - reference[i]));
  }
  // A ring of N values. Rank r contributes 2^r, so the bits of a sum name the ranks in it.
  comm.events().set_phase("steps");
  AllReduce ring{comm, make(mine.N), make(mine.N)};
  kernel::fill(1 << mine.r, ring.values);
  ring.after_step = [&](const char* half) {
    chunks.clear();
    for (const float sum : ring.values.data<float>())
      chunks += char('0' + std::popcount(unsigned(sum)));
    seen.ring += chunks;
    comm.events().append(EventKind::unit, half);
  };
  ring.ring();
  lesson.recording().stop(mine.r);
}

void body(Lesson& lesson) {
  const int64_t N = lesson.ranks(), n = lesson.count("--length");
  std::vector<Seen> seen(static_cast<size_t>(N));
  lesson.run_ranks(int(N),
                   [&](Communicator& comm) { one_rank(lesson, comm, seen[size_t(comm.rank())]); });
  lesson.say(
      "the ring after each step: a group is a rank, a digit is a chunk: how many ranks' values it "
      "sums");
  for (int64_t step = 0; step < 2 * (N - 1); ++step) {
    std::string line = str(step < N - 1 ? "  reduce-scatter " : "  all-gather     ", step + 1, " ");
    for (const Seen& s : seen) line += "  " + s.ring.substr(size_t(step * N), size_t(N));
    lesson.say(line);
  }
  lesson.say("summing n = " + with_commas(n) +
             " values: bytes of the busiest rank, bytes of all, largest difference to the library");
  for (size_t i = 0; const auto& way : kWays) {
    int64_t most = 0, expected = 0, all = 0;
    double off = 0;
    for (const Seen& s : seen) {
      most = std::max(most, s.sent_times_n[i] / N), expected = std::max(expected, s.expected[i]);
      all += s.sent_times_n[i], off = std::max(off, s.difference[i]);
    }
    lesson.number(str(way.name, "_busiest"), most, expected, way.formula);
    lesson.number(str(way.name, "_all"), all / N, 2 * (N - 1) * n * 4, "2 (N-1) n 4 B");
    const bool same = way.rank_order || N < 3;  // two values have one order
    lesson.number(str(way.name, "_off"), off, 0,
                  same ? 0 : std::ldexp(2.0 * double((N - 1) * N), -24),
                  same ? "0: same order of additions, same bits"
                       : "2 (N-1) N 2^-24: another order of values below 1");
    ++i;
  }
}

int main(int argc, char** argv) {
  const Flag length{"--length", "n", "values of each rank; lesson 03 has 28,576 parameters",
                    28576,      1,   10'000'000};
  return run(argc, argv, {"04_collectives", "What does each rank really send?", 4, 8, {length}},
             body);
}
