#include "stages/predict/clock/collective_time.h"

#include <algorithm>
#include <cmath>

namespace zl {
namespace {

// The parts of a ring's latency: NCCL's start of a call, and one message between neighbours.
constexpr double kBase = 8e-6, kHop = 1.2e-6, kPcieHop = 2.5e-6;
// [s/sqrt(B)] Pipelines that fill, of calls of medium size.
constexpr double kFillInNode = 3e-9, kFillOfSums = 1.1e-8, kFillBetweenNodes = 2.5e-8;

double messages(Collective collective, int ranks) {
  return collective == Collective::all_reduce ? 2.0 * (ranks - 1) : ranks - 1.0;
}

// What a ring between neighbours on one link reaches, where k of its hops leave a node.
CollectiveTerms ring_terms(const Machine& m, Collective collective, const RankPlaces& at) {
  const bool one = at.nodes == 1;
  const double rounds = messages(collective, at.ranks) / std::max(1, at.ranks - 1);
  const double far = one ? 0 : rounds * at.nodes, near = messages(collective, at.ranks) - far;
  const double hop = m.link.kind == NodeLink::Kind::pcie ? kPcieHop : kHop;
  const double in_node = m.link.bandwidth * m.link.ring;
  CollectiveTerms t{.alpha = kBase + std::max(0.0, near) * hop + far * m.network.hop,
                    .root = one ? kFillInNode : kFillBetweenNodes,
                    .bus = in_node};
  if (one) return t;
  const bool sums = collective == Collective::all_reduce;
  const double wire = m.network.ports * m.network.bandwidth;
  const double between = wire * (sums ? m.network.sums : m.network.gathers) / at.sharing;
  t.bus = at.ranks == at.nodes ? between : std::min(m.link.bandwidth, between);
  return t;
}

// An all-reduce that sums in the node first, then in a tree of nodes. A node then sends
// 2 (k - 1) / k times the bytes.
CollectiveTerms two_level_terms(const Machine& m, const RankPlaces& at) {
  const double n = at.ranks, k = at.nodes;
  const double wire = m.network.ports * m.network.bandwidth * m.network.sums / at.sharing;
  const double in_node = m.link.bandwidth * std::max(m.link.ring, m.link.switch_sums);
  return {.alpha = kBase + 2 * std::log2(k) * 1.5 * m.network.hop + 2 * (n / k - 1) * kHop,
          .root = kFillBetweenNodes,
          .bus = at.ranks == at.nodes
                     ? wire
                     : std::min({wire * (n - 1) * k / (n * (k - 1)), in_node, m.link.bandwidth})};
}

bool alike(Collective a, Collective b) {
  const auto shards = [](Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter;
  };
  return a == b || (shards(a) && shards(b));
}

// A measured row of these places; the same collective before its sibling.
const CollectiveRow* measured(const Machine& m, Collective collective, const RankPlaces& at) {
  const CollectiveRow* found = nullptr;
  for (const CollectiveRow& row : m.collectives)
    if (row.ranks == at.ranks && row.nodes == at.nodes && alike(row.collective, collective) &&
        (!found || row.collective == collective))
      found = &row;
  return found;
}

// Bytes that a link carries for each byte of the unsharded side.
double factor(Collective collective, int ranks) {
  return double(sent_bytes_times_n(collective, 1, ranks)) / ranks;
}

}  // namespace

RankPlaces places_of(const Machine& m, int ranks, int stride) {
  const int per_node = std::max(1, m.ranks_per_node / stride);  // of the group
  const int nodes = (ranks + per_node - 1) / per_node;
  return {.ranks = ranks,
          .nodes = nodes,
          .sharing = nodes > 1 ? std::min(stride, m.ranks_per_node) : 1};
}

CollectiveModel collective_model(const Machine& m, Collective collective, const RankPlaces& at) {
  if (at.ranks < 2) return {"none", {}};
  if (at.sharing == 1)
    if (const CollectiveRow* row = measured(m, collective, at)) return {"measured", row->terms};
  const CollectiveModel ring{"ring", ring_terms(m, collective, at)};
  if (collective != Collective::all_reduce) return ring;
  if (at.nodes > 1) {
    const CollectiveModel levels{"two levels", two_level_terms(m, at)};
    return levels.terms.bus > ring.terms.bus || levels.terms.alpha < ring.terms.alpha ? levels
                                                                                      : ring;
  }
  if (m.link.switch_sums == 0 || at.ranks < m.link.switch_sums_from) return ring;
  return {"NVLS", {kBase + 6e-6, kFillOfSums, m.link.bandwidth * m.link.switch_sums}};
}

double collective_seconds(const Machine& m, Collective collective, int64_t bytes,
                          const RankPlaces& at) {
  const CollectiveTerms t = collective_model(m, collective, at).terms;
  if (at.ranks < 2) return 0;
  const double S = double(bytes);
  return t.alpha + t.root * std::sqrt(S) +
         (t.bus > 0 ? S * factor(collective, at.ranks) / t.bus : 0);
}

}  // namespace zl
