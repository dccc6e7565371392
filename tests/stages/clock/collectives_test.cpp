// The model of collectives on machines, and the fit of its three terms to measured times.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "stages/predict/clock/collective_time.h"

using namespace zl;
using Catch::Approx;

namespace {

constexpr int64_t MiB = int64_t(1) << 20;
constexpr Collective kSharded[] = {Collective::all_reduce, Collective::all_gather,
                                   Collective::reduce_scatter};

// Without the rows that were measured on it.
Machine modelled(const std::string& name) {
  Machine m = find_machine(name);
  m.collectives.clear();
  return m;
}

// t = alpha + root * sqrt(min(S, 128 MiB)) + S * 2 (n - 1) / n / bus, for 64 KiB to 8 GiB.
std::vector<TimedCall> all_reduces(double alpha, double root, double bus, int n) {
  std::vector<TimedCall> calls;
  for (int64_t S = 64 << 10; S <= 8192 * MiB; S *= 2)
    calls.push_back({S, alpha + root * std::sqrt(double(std::min(S, 128 * MiB))) +
                            double(S) * 2 * (n - 1) / n / bus});
  return calls;
}

}  // namespace

TEST_CASE("a collective gets faster with each bandwidth and slower with each latency",
          "[stages][clock]") {
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

TEST_CASE("a ring takes its messages and its bytes, by hand; trees grow with the logarithm",
          "[stages][clock]") {
  const Machine m = modelled("a100-80gb");
  // One node: bus = 300 GB/s * 0.8.
  const CollectiveModel gather =
      collective_model(m, Collective::all_gather, 1, {.ranks = 8, .nodes = 1});
  CHECK(gather.algorithm == std::string("ring"));
  CHECK(gather.terms.bus == 300e9 * 0.8);
  const auto seconds = [&](Collective c, int ranks, int64_t bytes) {
    return collective_seconds(m, c, bytes, places_of(m, ranks));
  };
  CHECK(seconds(Collective::all_gather, 1, 1 << 30) == 0);
  // All-reduce sends twice as much as a gather, so for large tensors it takes twice the time.
  CHECK(seconds(Collective::all_reduce, 8, 65'536 * MiB) /
            seconds(Collective::all_gather, 8, 65'536 * MiB) ==
        Approx(2).margin(0.01));
  // From 512 to 1024 ranks, 448 hops in nodes and 64 between them are added to a ring.
  const auto alpha = [&](Collective c, const RankPlaces& at) {
    return collective_model(m, c, 1, at).terms.alpha;
  };
  const auto added = [&](Collective c, int ranks) {
    return alpha(c, places_of(m, 2 * ranks)) - alpha(c, places_of(m, ranks));
  };
  CHECK(added(Collective::all_gather, 512) == Approx(448 * 1.2e-6 + 64 * m.network.hop));
  CHECK(added(Collective::all_gather, 1024) == Approx(2 * added(Collective::all_gather, 512)));
  for (const int in_node : {1, 8}) {  // 1: the groups of hsdp between nodes
    const auto latency = [&](int nodes) {
      return alpha(Collective::all_reduce, {nodes * in_node, nodes, 1});
    };
    const double doubling = latency(128) - latency(64);
    CHECK(doubling == Approx(3 * m.network.hop));  // up and down, 1.5 hops each
    CHECK(latency(512) - latency(64) == Approx(3 * doubling));
  }
}

TEST_CASE("groups know in how many nodes they are, and share a node's network", "[stages][clock]") {
  const Machine m = find_machine("h100-sxm");  // 8 ranks per node
  const auto all = places_of(m, 64), node = places_of(m, 8), across = places_of(m, 8, 8);
  CHECK((all.nodes == 8 && all.sharing == 1));
  CHECK((node.nodes == 1 && node.sharing == 1));
  CHECK((across.ranks == 8 && across.nodes == 8 && across.sharing == 8));
  // Eight groups at once have an eighth of the ports each, which is one.
  Machine plain = modelled("h100-sxm");
  const auto bus = [&](const RankPlaces& at) {
    return collective_model(plain, Collective::all_gather, 1, at).terms.bus;
  };
  const double port = m.network.bandwidth * m.network.gathers;
  CHECK(bus(across) == Approx(port));
  CHECK(bus({8, 8, 1}) == Approx(port));  // and so has one group, whose node has one rank
  plain.network.ports = 4;                // two ranks share a port
  CHECK(bus(across) == Approx(port / 2));
  CHECK(bus({8, 8, 1}) == Approx(port));
}

TEST_CASE("a node sends through the ports of its ranks only", "[stages][clock]") {
  Machine m = modelled("a100-80gb");  // 8 ports of 25 GB/s, and 8 ranks
  const auto ports = [&](const RankPlaces& at) {
    return collective_model(m, Collective::all_gather, 1, at).terms.bus /
           (m.network.bandwidth * m.network.gathers);
  };
  CHECK(ports({.ranks = 16, .nodes = 2}) == Approx(8));
  CHECK(ports({.ranks = 4, .nodes = 2}) == Approx(2));
  m.network.ports_per_rank = 3;
  CHECK(ports({.ranks = 4, .nodes = 2}) == Approx(6));
  CHECK(ports({.ranks = 16, .nodes = 2}) == Approx(8));  // not 24: the node has no more
  m.network.ports_per_rank = 1;
  CHECK(ports(places_of(m, 9)) == Approx(1));  // the second node has one rank
  CHECK(ports(places_of(m, 12)) == Approx(4));
}

TEST_CASE("a group of consecutive ranks may span nodes, and the worst group counts",
          "[stages][clock]") {
  const Machine m = find_machine("h100-sxm");  // 8 ranks per node
  const auto is = [](const RankPlaces& at, int nodes, int sharing, int fewest) {
    return at.nodes == nodes && at.sharing == sharing && at.fewest == fewest;
  };
  CHECK(is(places_of_groups(m, 64, 8), 1, 1, 8));
  CHECK(is(places_of_groups(m, 64, 4), 1, 1, 4));
  CHECK(is(places_of_groups(m, 8192, 512), 64, 1, 8));
  CHECK(is(places_of_groups(m, 24, 12), 2, 2, 4));  // the node in the middle has two of them
  CHECK(is(places_of_groups(m, 24, 6), 2, 2, 2));   // ranks 6 to 11
  CHECK(is(places_of_groups(m, 12, 12), 2, 1, 4));  // all ranks: it has no neighbour
  // A replica group of 16 has one rank on each of its nodes, with 7 others there.
  const RankPlaces replicas = places_of(m, 16, 512);
  CHECK((replicas.nodes == 16 && replicas.sharing == 8 && replicas.fewest == 1));
}

TEST_CASE("an all-reduce takes the algorithm that is faster for its size", "[stages][clock]") {
  Machine m;
  m.ranks_per_node = 8;
  m.link = {.kind = NodeLink::Kind::nvlink, .bandwidth = 100e9, .ring = 0.5};
  m.network = {.kind = "InfiniBand", .ports = 8, .bandwidth = 25e9, .hop = 8e-6};
  const RankPlaces at = places_of(m, 32);
  const auto model = [&](int64_t bytes) {
    return collective_model(m, Collective::all_reduce, bytes, at);
  };
  // 62 messages of a ring, of which 8 leave a node; two levels of a tree of 4 nodes, up and down.
  const CollectiveModel small = model(1024), large = model(int64_t(1) << 30);
  CHECK(small.algorithm == std::string("two levels"));
  CHECK(small.terms.alpha == Approx(8e-6 + 2 * 2 * 1.5 * 8e-6 + 2 * 7 * 1.2e-6));
  CHECK(large.algorithm == std::string("ring"));
  CHECK(large.terms.alpha == Approx(8e-6 + 54 * 1.2e-6 + 8 * 8e-6));
  CHECK(large.terms.bus > 2 * small.terms.bus);  // its node's links limit the tree
  const auto seconds = [&](const CollectiveModel& by, int64_t bytes) {
    return seconds_of(by.terms, Collective::all_reduce, bytes, 32);
  };
  bool differ = false;
  for (int64_t bytes = 1024; bytes <= int64_t(1) << 30; bytes *= 2) {
    CAPTURE(bytes);
    const double least = std::min(seconds(small, bytes), seconds(large, bytes));
    CHECK(collective_seconds(m, Collective::all_reduce, bytes, at) == Approx(least));
    differ = differ || least < 0.8 * std::max(seconds(small, bytes), seconds(large, bytes));
  }
  CHECK(differ);
}

TEST_CASE("measured rows come before the model, for their ranks and nodes only",
          "[stages][clock]") {
  const Machine model = modelled("a100-80gb");
  Machine m = model;
  m.collectives = {{.collective = Collective::all_reduce,
                    .ranks = 16,
                    .nodes = 2,
                    .terms = {.alpha = 1e-3, .root = 0, .bus = 1e9}},
                   {.collective = Collective::all_gather,
                    .ranks = 8,
                    .nodes = 1,
                    .terms = {.alpha = 1, .root = 0, .bus = 1e9}}};
  const auto algorithm = [&](Collective c, int ranks) {
    return std::string(collective_model(m, c, 1, places_of(m, ranks)).algorithm);
  };
  CHECK(algorithm(Collective::all_gather, 8) == "measured");
  CHECK(algorithm(Collective::reduce_scatter, 8) == "measured");  // its sibling
  CHECK(algorithm(Collective::all_reduce, 8) == "ring");
  CHECK(algorithm(Collective::all_gather, 4) == "ring");
  // 1 ms, and 256 MiB * 2 * 15 / 16 at 1 GB/s.
  const auto seconds = [](const Machine& on, Collective c, int ranks) {
    return collective_seconds(on, c, 256 * MiB, places_of(on, ranks));
  };
  CHECK(seconds(m, Collective::all_reduce, 16) == Approx(1e-3 + 256.0 * MiB * 1.875 / 1e9));
  for (const int ranks : {8, 24})
    CHECK(seconds(m, Collective::all_reduce, ranks) ==
          seconds(model, Collective::all_reduce, ranks));
}

TEST_CASE("the fit finds the terms that times were made from, and needs sizes and times",
          "[stages][clock]") {
  CHECK(fill_root(MiB) == 1024);  // pipelines fill up to 128 MiB
  CHECK(fill_root(128 * MiB) > fill_root(64 * MiB));
  CHECK(fill_root(4096 * MiB) == fill_root(128 * MiB));
  const auto fit = [](const std::vector<TimedCall>& calls, int ranks) {
    return fit_terms(calls, Collective::all_reduce, ranks);
  };
  std::vector<TimedCall> calls = all_reduces(39e-6, 2.8e-8, 480e9, 16);
  const CollectiveTerms three = fit(calls, 16), two = fit(all_reduces(5e-6, 0, 20e9, 8), 8);
  CHECK(three.alpha == Approx(39e-6).epsilon(1e-6));
  CHECK(three.root == Approx(2.8e-8).epsilon(1e-6));
  CHECK(three.bus == Approx(480e9).epsilon(1e-6));
  CHECK(two.alpha == Approx(5e-6));
  CHECK(two.root < 1e-13);  // [s/sqrt(B)] 1 ns of 128 MiB: rounding
  CHECK(two.bus == Approx(20e9));
  calls[3].seconds *= 1.5;
  CHECK(fit(calls, 16).alpha != Approx(39e-6).epsilon(1e-3));
  // 1 ns for a byte; nccl-tests: of n ranks an all-reduce sends 2 (n - 1) / n, an all-gather half.
  calls = {{MiB, MiB * 1e-9}, {4 * MiB, 4 * MiB * 1e-9}};
  CHECK(fit(calls, 4).bus == Approx(1.5e9));
  CHECK(fit_terms(calls, Collective::all_gather, 4).bus == Approx(0.75e9));
  CHECK_THROWS_AS(fit({}, 2), std::invalid_argument);
  CHECK_THROWS_AS(fit({{MiB, 0}}, 2), std::invalid_argument);
}

TEST_CASE("a term that would be negative is 0, and the others fit without it", "[stages][clock]") {
  // Two times that grow faster than their sizes: a line through them starts below 0.
  const std::vector<TimedCall> calls = {{256 * MiB, 1e-3}, {512 * MiB, 2.2e-3}};
  const CollectiveTerms terms = fit_terms(calls, Collective::all_reduce, 2);
  CHECK(terms.alpha == 0);
  CHECK(terms.root == 0);
  // The least sum of (x S / t - 1)^2 has x = sum(S / t) / sum((S / t)^2).
  const double a = 256.0 * MiB / 1e-3, b = 512.0 * MiB / 2.2e-3;
  CHECK(terms.bus == Approx((a * a + b * b) / (a + b)));
}
