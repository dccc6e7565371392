// The explored communicator moves what ordinary ranks move, bit for bit, in every schedule.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "dist/run_ranks.h"
#include "tensor/kernels.h"
#include "tests/stages/explored/checked_backend.h"
#include "tests/stages/explored/explored_ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kShard = 5;  // [n]

// What a rank has after one call of each kind; several are in flight at one time.
std::vector<float> values_after_calls(Communicator& comm, Memory& memory, Dtype dtype) {
  const int64_t n = kShard * comm.size();
  std::vector<Tensor> tensors;
  const auto values = [&](int64_t count) -> Tensor& {
    tensors.push_back(Tensor::empty(memory, MemoryUse::gradient, {count}, dtype));
    const auto stream = uint64_t(100 * comm.rank()) + tensors.size();
    kernel::normal({.seed = 1, .stream = stream, .mean = 0, .deviation = 1}, 0, tensors.back());
    return tensors.back();
  };
  tensors.reserve(16);
  const CallName name{"values", Purpose::check};
  std::vector<Work> works;
  const Tensor same = Tensor::empty(memory, MemoryUse::gradient, {n}, dtype);
  kernel::fill(0.3, same);
  works.push_back(comm.all_reduce(values(n), Reduction::sum, name));
  works.push_back(comm.all_reduce(values(n), Reduction::mean, name));
  works.push_back(comm.all_reduce(values(n), Reduction::sum, name, same));
  const Tensor sum = values(n), mean = values(n), from_start = values(n);
  works.push_back(comm.reduce_scatter(sum, Reduction::sum, name));
  works.push_back(comm.reduce_scatter(mean, Reduction::mean, name));
  works.push_back(comm.reduce_scatter(from_start, Reduction::sum, name, values(kShard)));
  works.push_back(comm.all_gather(values(n), name));
  works.push_back(comm.broadcast(values(n), comm.size() - 1, name));
  const Tensor from = values(n);
  works.push_back(comm.all_to_all(from, values(n), name));
  for (Work& work : works) work.wait();
  std::vector<float> all;
  for (const Tensor& t : tensors) {
    const bool scattered =
        t.same_storage(sum) || t.same_storage(mean) || t.same_storage(from_start);
    const Tensor specified = scattered ? t.slice(comm.rank() * kShard, {kShard}) : t;
    for (const float value : kernel::download_floats(specified)) all.push_back(value);
  }
  return all;
}

using OfRanks = std::vector<std::vector<float>>;

OfRanks on_ordinary_ranks(int ranks, Dtype dtype) {
  OfRanks all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
    all[size_t(comm.rank())] = values_after_calls(comm, memory, dtype);
  });
  return all;
}

OfRanks on_explored_ranks(int ranks, Dtype dtype, Schedule& schedule) {
  OfRanks all(static_cast<size_t>(ranks));
  ExploredRanks explored(ranks, schedule);
  explored.run([&](Communicator& comm) {
    CheckedBackend backend(explored, comm.rank());
    Memory memory({}, backend, comm.events(), {.poison = true});
    all[size_t(comm.rank())] = values_after_calls(comm, memory, dtype);
  });
  return all;
}

}  // namespace

TEST_CASE("every call on explored ranks has the bits of ordinary ranks", "[stages][explored]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  const int ranks = GENERATE(1, 2, 3, 4);
  CAPTURE(name(dtype), ranks);
  const OfRanks expected = on_ordinary_ranks(ranks, dtype);
  Eager eager;
  Lazy lazy;
  CHECK(on_explored_ranks(ranks, dtype, eager) == expected);
  CHECK(on_explored_ranks(ranks, dtype, lazy) == expected);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Pct pct(seed, kPctDepth, ranks + 1, 500);
    CHECK(on_explored_ranks(ranks, dtype, pct) == expected);
  }
  CHECK(expected != on_ordinary_ranks(ranks, dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32));
}
