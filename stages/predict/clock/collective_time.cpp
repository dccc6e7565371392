#include "stages/predict/clock/collective_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace {

// The parts of a ring's latency: NCCL's start of a call, and one message between neighbours.
constexpr double kBase = 8e-6, kHop = 1.2e-6, kPcieHop = 2.5e-6, kSumsInSwitch = 6e-6;  // [s]
constexpr double kFillOfSums = 1.1e-8;  // [s/sqrt(B)] of sums in the switch
// A tree's nodes forward what they receive, so that a link of a node carries less than in a ring:
// NCCL's 23.6 GB/s for a channel of 30 (A100, two nodes).
constexpr double kTree = 0.79;

double passes(Collective collective) { return collective == Collective::all_reduce ? 2 : 1; }

// [s/sqrt(B)] Of a pipeline whose chunks have the best size. With k hops of h seconds behind the
// first and rate B, m chunks take (m + k) (h + S / (m B)); the best m leaves a term of
// 2 sqrt(k h S / B). k = 1.4 for each pass over the ring is what the tables of 2 nodes say.
double fill(Collective collective, double hop, double bus) {
  constexpr double k = 1.4;
  return passes(collective) * 2 * std::sqrt(k * hop / bus);
}

// [B/s] What a node sends for one group. Its ranks use their ports only, so that a node with few
// ranks leaves the others idle.
double wire(const Machine& m, const RankPlaces& at) {
  const int ranks = (at.fewest > 0 ? at.fewest : at.ranks / at.nodes) * at.sharing;
  return std::min(m.network.ports, ranks * m.network.ports_per_rank) * m.network.bandwidth /
         at.sharing;
}

// What a ring between neighbours on one link reaches, where k of its hops leave a node.
CollectiveTerms ring_terms(const Machine& m, Collective collective, const RankPlaces& at) {
  const bool one = at.nodes == 1;
  const double far = one ? 0 : passes(collective) * at.nodes,
               near = passes(collective) * (at.ranks - 1) - far;
  const double hop = m.link.kind == NodeLink::Kind::pcie ? kPcieHop : kHop;
  CollectiveTerms t{.alpha = kBase + std::max(0.0, near) * hop + far * m.network.hop,
                    .root = 0,
                    .bus = m.link.bandwidth * m.link.ring};
  if (!one) {
    const bool sums = collective == Collective::all_reduce;
    const double between = wire(m, at) * (sums ? m.network.sums : m.network.gathers);
    t.bus = at.ranks == at.nodes ? between : std::min(m.link.bandwidth, between);
  }
  t.root = fill(collective, one ? hop : m.network.hop, t.bus);
  return t;
}

// An all-reduce that sums in the node first, and then along two binary trees of nodes. Of two
// nodes each sends its sum once. In larger trees a node sends twice as much, as in a ring: half to
// its parents, half to its children.
CollectiveTerms two_level_terms(const Machine& m, const RankPlaces& at) {
  const double n = at.ranks, k = at.nodes;
  const double between = wire(m, at) * m.network.sums;
  const bool in_switch = m.link.switch_sums > 0;
  const double in_node = m.link.bandwidth * (in_switch ? m.link.switch_sums : m.link.ring * kTree);
  const double latency = in_switch ? kSumsInSwitch : 2 * (n / k - 1) * kHop;
  CollectiveTerms t{.alpha = kBase + 2 * std::log2(k) * 1.5 * m.network.hop + latency,
                    .root = 0,
                    .bus = std::min(between * (n - 1) / n * (at.nodes == 2 ? 2 : 1), in_node)};
  t.root = fill(Collective::all_reduce, m.network.hop, t.bus);
  return t;
}

bool moves_shards(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter;
}

// A measured row of these places; the same collective before its sibling.
const CollectiveRow* measured(const Machine& m, Collective collective, const RankPlaces& at) {
  const CollectiveRow* found = nullptr;
  for (const CollectiveRow& row : m.collectives)
    if (row.ranks == at.ranks && row.nodes == at.nodes &&
        (row.collective == collective ||
         (!found && moves_shards(row.collective) && moves_shards(collective))))
      found = &row;
  return found;
}

}  // namespace

double link_factor(Collective collective, int ranks) {
  return double(sent_bytes_times_n(collective, 1, ranks)) / ranks;
}

double fill_root(int64_t bytes) {
  constexpr int64_t kFull = int64_t(128) << 20;  // [B]
  return std::sqrt(double(std::min(bytes, kFull)));
}

double seconds_of(const CollectiveTerms& t, Collective collective, int64_t bytes, int ranks) {
  return t.alpha + t.root * fill_root(bytes) +
         (t.bus > 0 ? double(bytes) * link_factor(collective, ranks) / t.bus : 0);
}

RankPlaces places_of(const Machine& m, int ranks, int stride) {
  const int per_node = std::max(1, m.ranks_per_node / stride);  // of the group
  const int nodes = (ranks + per_node - 1) / per_node;
  return {.ranks = ranks,
          .nodes = nodes,
          .sharing = nodes > 1 ? std::min(stride, m.ranks_per_node) : 1,
          .fewest = ranks - (nodes - 1) * per_node};
}

RankPlaces places_of_groups(const Machine& m, int ranks, int each) {
  const int per_node = m.ranks_per_node;
  RankPlaces most{.ranks = each, .fewest = each};
  for (int first = 0; first < ranks; first += each) {
    const int end = first + each, nodes = (end - 1) / per_node - first / per_node + 1;
    if (nodes < most.nodes || nodes == 1) continue;
    if (nodes > most.nodes) most = {.ranks = each, .nodes = nodes, .fewest = each};
    // On its first and its last node the group may have neighbours.
    const int on_first = per_node - first % per_node,
              on_last = end - (end - 1) / per_node * per_node;
    if (on_first < per_node || (on_last < per_node && end < ranks)) most.sharing = 2;
    most.fewest = std::min({most.fewest, on_first, on_last});
  }
  return most;
}

CollectiveModel collective_model(const Machine& m, Collective collective, int64_t bytes,
                                 const RankPlaces& at) {
  if (at.ranks < 2) return {"none", {}};
  if (at.sharing == 1)
    if (const CollectiveRow* row = measured(m, collective, at)) return {"measured", row->terms};
  std::vector<CollectiveModel> all = {{"ring", ring_terms(m, collective, at)}};
  if (collective == Collective::all_reduce) {
    if (at.nodes > 1)
      all.push_back({"two levels", two_level_terms(m, at)});
    else if (m.link.switch_sums > 0 && at.ranks >= m.link.switch_sums_from)
      all.push_back(
          {"NVLS", {kBase + kSumsInSwitch, kFillOfSums, m.link.bandwidth * m.link.switch_sums}});
  }
  return *std::ranges::min_element(all, {}, [&](const CollectiveModel& model) {
    return seconds_of(model.terms, collective, bytes, at.ranks);
  });
}

double collective_seconds(const Machine& m, Collective collective, int64_t bytes,
                          const RankPlaces& at) {
  if (at.ranks < 2) return 0;
  return seconds_of(collective_model(m, collective, bytes, at).terms, collective, bytes, at.ranks);
}

CollectiveTerms fit_terms(std::span<const TimedCall> calls, Collective collective, int ranks) {
  require(!calls.empty(), "fit_terms: there are no calls");
  // In these units the unknowns are of the same size for every table.
  constexpr double kRoot = 1e-3, kBytes = 1e-6;
  double a[3][3] = {}, b[3] = {}, x[3] = {};  // the normal equations a x = b
  for (const TimedCall& call : calls) {
    require(call.bytes > 0 && call.seconds > 0, "fit_terms: ", call.bytes, " B in ", call.seconds,
            " s");
    const double microseconds = 1e6 * call.seconds,
                 row[3] = {1 / microseconds, kRoot * fill_root(call.bytes) / microseconds,
                           kBytes * double(call.bytes) / microseconds};
    for (int i = 0; i < 3; ++i) {
      b[i] += row[i];
      for (int j = 0; j < 3; ++j) a[i][j] += row[i] * row[j];
    }
  }
  // Coordinate descent: of one unknown after another the best value of at least 0. Published tables
  // take at most 211 passes.
  constexpr int kPasses = 100'000;
  bool changes = true;
  for (int pass = 0; changes && pass < kPasses; ++pass) {
    changes = false;
    for (int i = 0; i < 3; ++i) {
      const double rest = b[i] - a[i][0] * x[0] - a[i][1] * x[1] - a[i][2] * x[2],
                   before = std::exchange(x[i], std::max(0.0, x[i] + rest / a[i][i]));
      changes = changes || std::abs(x[i] - before) > 1e-12 * x[i];
    }
  }
  const double seconds_per_byte = 1e-6 * kBytes * x[2];
  return {.alpha = 1e-6 * x[0],
          .root = 1e-6 * kRoot * x[1],
          .bus = seconds_per_byte > 0 ? link_factor(collective, ranks) / seconds_per_byte : 0};
}

}  // namespace zl
