// Long random sequences of calls, each checked on each rank. ZEROLAB_RANDOM_COLLECTIVES says how
// many.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <random>

#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Step {
  int kind;  // 0 to 6
  int64_t slice;
  int root;
  Reduction reduction;
  int64_t seed;
};

Step draw(std::mt19937& random, int ranks) {
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  Step step;
  step.kind = below(7);
  step.slice = below(20) == 0 ? below(3000) : below(40);
  step.root = below(ranks);
  step.reduction = below(2) ? Reduction::mean : Reduction::sum;
  step.seed = below(1 << 20);
  return step;
}

// What rank `rank` holds at element i after the step; NaN where it may hold anything.
template <class T>
T expected(const Step& step, int rank, int ranks, int64_t i) {
  const auto at = [&](int r, int64_t j) { return as<T>(value(step.seed, r, j)); };
  const int owner = int(i / std::max<int64_t>(step.slice, 1));
  if (step.kind == 2) return at(owner, i);
  if (step.kind == 3) return at(step.root, i);
  if (step.kind == 4) return at(owner, rank * step.slice + i % step.slice);
  if (step.kind == 5) return at(rank, i);                        // barrier
  if (step.kind == 6) return at((rank + ranks - 1) % ranks, i);  // from the left neighbour
  Compute<T> sum = Compute<T>(at(0, i));
  for (int r = 1; r < ranks; ++r) sum += Compute<T>(at(r, i));
  return T(step.reduction == Reduction::mean ? sum / Compute<T>(ranks) : sum);
}

template <class T>
bool take(const Step& step, Rank& rank) {
  Communicator& comm = rank.comm;
  const int n = comm.size(), r = comm.rank();
  const int64_t count = step.slice * n;
  const Tensor t = rank.tensor(values<T>(step.seed, r, count));
  Tensor result = t;
  if (step.kind == 0) comm.all_reduce(t, step.reduction, kName).wait();
  if (step.kind == 1) comm.reduce_scatter(t, step.reduction, kName).wait();
  if (step.kind == 2) comm.all_gather(t, kName).wait();
  if (step.kind == 3) comm.broadcast(t, step.root, kName).wait();
  if (step.kind == 5) comm.barrier(kName).wait();
  if (step.kind == 4 || step.kind == 6) result = rank.empty(count, dtype_of<T>);
  if (step.kind == 4) comm.all_to_all(t, result, kName).wait();
  if (step.kind == 6) {
    Work sent = comm.send(t, (r + 1) % n, kName),
         received = comm.receive(result, (r + n - 1) % n, kName);
    (step.seed % 2 ? sent : received).wait();
    (step.seed % 2 ? received : sent).wait();
  }
  const std::vector<T> data = contents<T>(result);
  for (int64_t i = 0; i < count; ++i) {
    if (step.kind == 1 && i / step.slice != r) continue;
    const T e = expected<T>(step, r, n, i);
    if (std::memcmp(&e, &data[size_t(i)], sizeof(T)) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a random sequence of collectives does what each of them should", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  const char* wanted = std::getenv("ZEROLAB_RANDOM_COLLECTIVES");
  const int steps = (wanted ? std::atoi(wanted) : kThreadSanitizer ? 300 : 2000) / 5;
  CAPTURE(ranks, steps);
  std::vector<int> right(size_t(ranks), 0);
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        std::mt19937 random(uint32_t(1000 + ranks));  // the same on all ranks
        for (int i = 0; i < steps; ++i) {
          const Step step = draw(random, ranks);
          const bool ok = i % 4 == 0   ? take<bf16>(step, rank)
                          : i % 4 == 1 ? take<f16>(step, rank)
                          : i % 4 == 2 ? take<double>(step, rank)
                                       : take<float>(step, rank);
          right[size_t(comm.rank())] += ok;
        }
      },
      within(std::chrono::seconds(60)));
  CHECK(right == std::vector<int>(size_t(ranks), steps));
}
