// The model of collectives: what it must do on any machine.
#include "stages/predict/clock/collective_time.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace zl;

namespace {

constexpr int64_t MiB = int64_t(1) << 20;
constexpr Collective kSharded[] = {Collective::all_reduce, Collective::all_gather,
                                   Collective::reduce_scatter};

}  // namespace

TEST_CASE("a collective gets faster with each bandwidth and slower with each latency", "[stages]") {
  for (Machine m : shipped_machines()) {
    m.collectives.clear();
    if (m.network.ports == 0) continue;
    Machine wide_link = m, wide_network = m, slow_hop = m;
    wide_link.link.bandwidth *= 2;
    wide_network.network.bandwidth *= 2;
    slow_hop.network.hop *= 2;
    for (const Collective c : kSharded)
      for (const int ranks : {2, 4, 8, 16, 64, 512})
        for (const int64_t bytes : {MiB / 16, MiB, 64 * MiB, 4096 * MiB}) {
          const RankPlaces at = places_of(m, ranks);
          CAPTURE(m.name, name(c), ranks, bytes);
          const double seconds = collective_seconds(m, c, bytes, at);
          CHECK(collective_seconds(wide_link, c, bytes, at) <= seconds);
          CHECK(collective_seconds(wide_network, c, bytes, at) <= seconds);
          CHECK(collective_seconds(slow_hop, c, bytes, at) >= seconds);
          CHECK(collective_seconds(m, c, bytes + MiB, at) > seconds);
          if (at.nodes > 1) CHECK(collective_seconds(slow_hop, c, bytes, at) > seconds);
        }
  }
}

TEST_CASE("a ring's latency is linear in its ranks, that of trees is not", "[stages]") {
  Machine m = find_machine("h100-sxm");
  m.collectives.clear();
  const auto alpha = [&](Collective c, int ranks) {
    return collective_model(m, c, 1, places_of(m, ranks)).terms.alpha;
  };
  // From 512 to 1024 ranks, 448 hops in nodes and 64 between them are added to a ring.
  const double added = alpha(Collective::all_gather, 1024) - alpha(Collective::all_gather, 512);
  CHECK(added == Catch::Approx(448 * 1.2e-6 + 64 * m.network.hop).epsilon(1e-9));
  CHECK(alpha(Collective::all_gather, 2048) - alpha(Collective::all_gather, 1024) ==
        Catch::Approx(2 * added));
  CHECK(alpha(Collective::all_reduce, 2048) - alpha(Collective::all_reduce, 1024) ==
        Catch::Approx(alpha(Collective::all_reduce, 1024) - alpha(Collective::all_reduce, 512)));
}

TEST_CASE("what a machine has measured comes before the model, for its ranks and nodes only",
          "[stages]") {
  Machine m = find_machine("a100-80gb");
  m.collectives = {{.collective = Collective::all_reduce,
                    .ranks = 16,
                    .nodes = 2,
                    .terms = {.alpha = 1e-3, .root = 0, .bus = 1e9}}};
  // 1 ms, and 256 MiB * 2 * 15 / 16 at 1 GB/s.
  CHECK(collective_seconds(m, Collective::all_reduce, 256 * MiB, places_of(m, 16)) ==
        Catch::Approx(1e-3 + 256.0 * MiB * 1.875 / 1e9));
  Machine model = m;
  model.collectives.clear();
  for (const int ranks : {8, 24})
    CHECK(collective_seconds(m, Collective::all_reduce, 256 * MiB, places_of(m, ranks)) ==
          collective_seconds(model, Collective::all_reduce, 256 * MiB, places_of(m, ranks)));
  CHECK(collective_seconds(m, Collective::all_gather, 256 * MiB, places_of(m, 16)) ==
        collective_seconds(model, Collective::all_gather, 256 * MiB, places_of(m, 16)));
}

TEST_CASE("pipelines fill up to 128 MiB", "[stages]") {
  CHECK(fill_root(MiB) == 1024);
  CHECK(fill_root(128 * MiB) > fill_root(64 * MiB));
  CHECK(fill_root(4096 * MiB) == fill_root(128 * MiB));
}

TEST_CASE("an all-reduce of two nodes may exceed the network's bandwidth, one of many may not",
          "[stages]") {
  // 8 x 50 GB/s. Vultr's B200: 718 GB/s on 2 nodes (nccl-tests); AWS p6: 382 GB/s on 4.
  Machine m = find_machine("b200");
  m.collectives.clear();
  const auto bus = [&](int ranks) {
    return collective_model(m, Collective::all_reduce, 4096 * MiB, places_of(m, ranks)).terms.bus;
  };
  CHECK(bus(16) == Catch::Approx(718e9).epsilon(0.05));
  CHECK(bus(32) == Catch::Approx(382e9).epsilon(0.05));
  CHECK(bus(1024) < 400e9);
  CHECK(collective_model(m, Collective::all_gather, MiB, places_of(m, 16)).terms.bus ==
        Catch::Approx(308e9).epsilon(0.05));
}
