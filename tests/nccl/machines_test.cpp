// Ordered sums between machines: the bits of threads, and the bytes that a chain of machines sends.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <tuple>

#include "dist/ordered/ordered_reduction.h"
#include "tests/nccl/stage_through_nccl.h"
#include "tests/pairwise.h"

using namespace zl;
using namespace zl::test;

namespace {

using Program = std::function<void(Communicator&, const Tensor&)>;

// `per_machine` ranks on each of `machines`.
struct Layout {
  int machines, per_machine;
  int ranks() const { return machines * per_machine; }
};

template <class T>
struct Ended {
  Buffers<T> out;
  int64_t network = 0;  // [B]
};

template <class T>
Ended<T> over_network(const Buffers<T>& in, const std::vector<int>& machine_of, Place place,
                      const Program& program) {
  Ended<T> ended;
  ended.out = after_nccl<T>(in, program,
                            {.lagging = place == Place::lagging,
                             .emulated = place == Place::emulated,
                             .timeout = std::chrono::seconds(60),
                             .machine_of = machine_of},
                            &ended.network);
  return ended;
}

std::vector<int> machines_of(const Layout& layout) {
  std::vector<int> machines;
  for (int r = 0; r < layout.ranks(); ++r) machines.push_back(r / layout.per_machine);
  return machines;
}

// [B] over the network, for a tensor of `bytes`; `wide`: of the accumulating type over the type's.
int64_t direct(const Layout& l, int64_t bytes) { return bytes * l.per_machine * (l.machines - 1); }
int64_t chained(const Layout& l, int64_t bytes, int64_t wide, int shards_of_start = 0) {
  return bytes * (l.machines - 1) * (wide * l.machines + 1 + shards_of_start) / l.machines;
}
int64_t ring(const Layout& l, int64_t bytes) {
  return bytes / l.ranks() * (l.ranks() - 1) * l.machines;
}

// The local shard of each rank's tensor, which is all that a reduce_scatter specifies.
template <class T>
void check_shards(const Buffers<T>& one, const Buffers<T>& other) {
  const size_t shard = one[0].size() / one.size();
  for (size_t r = 0; r < one.size(); ++r) {
    const auto own = [&](const Buffers<T>& all) {
      const auto begin = all[r].begin() + std::ptrdiff_t(r * shard);
      return std::vector<T>(begin, begin + std::ptrdiff_t(shard));
    };
    CHECK(same_bits(own(one), own(other)));
  }
}

constexpr Layout kLayouts[] = {{2, 2}, {2, 3}, {3, 2}, {4, 3}};

using Types = std::tuple<float, double, int32_t, bf16, f16>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("between machines sums have the bits of threads, and a chain's bytes",
                        "[nccl]", Types) {
  const int64_t wide = int64_t(sizeof(Compute<TestType>) / sizeof(TestType));
  SettingsRow pick = any_pair({4, 2});
  const Layout layout = kLayouts[pick.next({0, 1, 2, 3})];
  const bool mean = pick.next({false, true}) && !std::is_same_v<TestType, int32_t>;
  if (kThreadSanitizer && layout.ranks() != 6) return;
  const Place place = mean == (layout.machines == 2) ? Place::cpu : Place::lagging;
  const Reduction reduction = mean ? Reduction::mean : Reduction::sum;
  const int64_t shard = 37, count = shard * layout.ranks(), bytes = count * sizeof(TestType);
  const auto in = inputs<TestType>(layout.ranks(), count);
  CAPTURE(layout.machines, layout.per_machine, mean, int(place));
  const Program scatter = [&](Communicator& comm, const Tensor& t) {
    comm.reduce_scatter(t, reduction, kName).wait();
  };
  const Program reduce = [&](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, reduction, kName).wait();
  };
  const int64_t sent = std::min(chained(layout, bytes, wide), direct(layout, bytes));
  const auto scattered = over_network(in, machines_of(layout), place, scatter),
             reduced = over_network(in, machines_of(layout), place, reduce);
  check_shards(scattered.out, after<TestType>(in, scatter));
  const auto threads = after<TestType>(in, reduce);
  for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(reduced.out[r], threads[r]));
  CHECK_FALSE(same_bits(reduced.out[0], in[0]));
  CHECK(scattered.network == sent);
  CHECK(reduced.network == sent + ring(layout, bytes));
}

TEMPLATE_TEST_CASE("machines of 8 ranks send the share of a ring's bytes that the lab's page names",
                   "[nccl]", float, bf16) {
  const bool wide = sizeof(TestType) == 2;
  for (const int machines : {2, 4}) {
    const Layout layout{machines, 8};
    const auto in = inputs<TestType>(layout.ranks(), layout.ranks());
    const auto sent =
        over_network(in, machines_of(layout), Place::cpu, [](Communicator& comm, const Tensor& t) {
          comm.reduce_scatter(t, Reduction::sum, kName).wait();
        }).network;
    const int64_t of_ring = ring(layout, layout.ranks() * int64_t(sizeof(TestType)));
    CAPTURE(machines, wide);
    if (wide && machines == 2) CHECK(3 * sent == 4 * of_ring);
    if (wide && machines == 4) CHECK(31 * sent == 54 * of_ring);
    if (!wide) CHECK(sent <= of_ring);
  }
}

TEST_CASE("a sum that continues from a start has the bits of threads between machines", "[nccl]") {
  for (const Layout layout : kLayouts) {
    CAPTURE(layout.machines, layout.per_machine);
    const int64_t shard = 33, count = shard * layout.ranks(), bytes = 4 * count;
    const auto in = inputs<float>(layout.ranks(), 2 * count);
    // The first half is the start, of which a reduce_scatter has this rank's shard.
    const Program scatter = [&](Communicator& comm, const Tensor& t) {
      const Tensor full = t.slice(count, {count}), start = t.slice(0, {shard});
      comm.reduce_scatter(full, Reduction::sum, kName, start).wait();
      comm.all_gather(full, kName).wait();
    };
    const Program reduce = [&](Communicator& comm, const Tensor& t) {
      const Tensor start = t.slice(0, {count});
      comm.broadcast(start, 0, kName).wait();
      comm.all_reduce(t.slice(count, {count}), Reduction::sum, kName, start).wait();
    };
    const auto scattered = over_network(in, machines_of(layout), Place::lagging, scatter),
               reduced = over_network(in, machines_of(layout), Place::lagging, reduce);
    const auto scattered_by_threads = after<float>(in, scatter),
               reduced_by_threads = after<float>(in, reduce);
    for (size_t r = 0; r < in.size(); ++r) {
      CHECK(same_bits(scattered.out[r], scattered_by_threads[r]));
      CHECK(same_bits(reduced.out[r], reduced_by_threads[r]));
    }
    CHECK(scattered.network ==
          std::min(chained(layout, bytes, 1, 1), direct(layout, bytes)) + ring(layout, bytes));
    const int64_t broadcast = bytes * (layout.ranks() - layout.per_machine);  // the root sends all
    CHECK(reduced.network == broadcast + chained(layout, bytes, 1) + ring(layout, bytes));
  }
}

TEMPLATE_TEST_CASE(
    "between machines on emulated GPUs several sums in a group have the bits of threads", "[nccl]",
    float, bf16) {
  require_emulator();
  const Layout layout{2, 3};
  const auto in = inputs<TestType>(6, 6 * 66);
  const Program program = [](Communicator& comm, const Tensor& t) {
    std::vector<Work> works;
    comm.begin_group();
    works.push_back(comm.all_reduce(t.slice(0, {6 * 40}), Reduction::mean, kName));
    works.push_back(comm.all_reduce(t.slice(6 * 40, {6 * 20 + 1}), Reduction::mean, kName));
    works.push_back(comm.all_gather(t.slice(6 * 60 + 1, {30}), kName));
    comm.end_group();
    for (Work& work : works) work.wait();
  };
  const auto ended = over_network(in, machines_of(layout), Place::emulated, program);
  const auto threads = after<TestType>(in, program, [](int) { return RankBackends{}; });
  for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(ended.out[r], threads[r]));
}

namespace {

int64_t scattered_elements(const StageRun& run) {
  int64_t elements = 0;
  for (const auto& [row, traffic] : run.logs[0].rows())
    if (row.collective == Collective::reduce_scatter) elements += traffic.elements;
  return elements;
}

}  // namespace

TEST_CASE(
    "between machines the four stages have the bits, traffic and memory of one machine, and send "
    "less",
    "[nccl]") {
  SettingsRow pick = any_pair({4, 3, 2});
  const StageKind stage = pick.next_stage();
  const Layout layout = pick.next<Layout>({{2, 2}, {2, 3}, {3, 2}});
  const bool reproducible = pick.next({false, true});
  CAPTURE(layout.machines, layout.per_machine, reproducible, name(stage));
  StageRunSpec spec{
      .stage = stage, .ranks = layout.ranks(), .micro_batches = 2, .steps = 2, .scratch = true};
  spec.options.reproducible = reproducible;
  const StageRun threads = run_stage(spec);
  const auto over_machines = [&](bool knows, int64_t& network) {
    return through_nccl(spec, {.lagging = true, .machine_of = machines_of(layout), .told = knows},
                        &network);
  };
  int64_t chained_bytes = 0, direct_bytes = 0;
  const StageRun told = over_machines(true, chained_bytes),
                 direct_ones = over_machines(false, direct_bytes);
  CHECK(told.same_bits(threads));
  CHECK(direct_ones.same_bits(threads));
  CHECK(off_the_prediction(spec, told) == "");
  for (size_t r = 0; r < threads.logs.size(); ++r)
    CHECK(told.logs[r].rows() == threads.logs[r].rows());
  // A start for 2 machines of 2 ranks would cost what the chain saves.
  const bool chains = stage == StageKind::ddp || !reproducible || layout.ranks() > 4;
  CHECK((chained_bytes < direct_bytes) == chains);
  const int64_t bytes = 4 * scattered_elements(told);
  if (stage != StageKind::ddp && !reproducible)  // the other sums are few and uneven
    CHECK(direct_bytes - chained_bytes == direct(layout, bytes) - chained(layout, bytes, 1));
}

TEST_CASE("ranks that are not numbered machine by machine, and uneven counts, add directly",
          "[nccl]") {
  const Layout layout{2, 3};
  const Program reduce = [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::mean, kName).wait();
  };
  const auto even = inputs<float>(6, 6 * 10), uneven = inputs<float>(6, 400);
  const auto mixed = over_network(even, {0, 1, 0, 1, 0, 1}, Place::lagging, reduce),
             odd = over_network(uneven, machines_of(layout), Place::lagging, reduce);
  const auto mixed_by_threads = after<float>(even, reduce),
             odd_by_threads = after<float>(uneven, reduce);
  for (size_t r = 0; r < 6; ++r) {
    CHECK(same_bits(mixed.out[r], mixed_by_threads[r]));
    CHECK(same_bits(odd.out[r], odd_by_threads[r]));
  }
  const int64_t every_link = 4 * 50 * 6;  // of the ring, where neighbours are on other machines
  CHECK(mixed.network == direct(layout, 4 * 60) + every_link);
  CHECK(odd.network == 2 * direct(layout, 4 * 400));
}

TEST_CASE("the ranks of each machine are counted where they are numbered machine by machine",
          "[nccl]") {
  CHECK(ranks_per_machine({"a"}) == 1);
  CHECK(ranks_per_machine({"a", "a", "a"}) == 3);
  CHECK(ranks_per_machine({"a", "b", "c"}) == 1);
  CHECK(ranks_per_machine({"a", "a", "b", "b", "c", "c"}) == 2);
  CHECK(ranks_per_machine({"a", "b", "a", "b"}) == 4);
  CHECK(ranks_per_machine({"a", "b", "b", "a"}) == 4);
  CHECK(ranks_per_machine({"a", "a", "b"}) == 3);
  CHECK(ranks_per_machine({"a", "a", "b", "c", "c", "b"}) == 6);
  CHECK(ranks_per_machine({"a", "a", "b", "b", "a", "a"}) == 6);
}
