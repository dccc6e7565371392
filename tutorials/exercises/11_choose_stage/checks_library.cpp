// What the library says, from its closed formulas and its model of collectives.
#include <cmath>
#include <numeric>

#include "stages/predict/clock/collective_time.h"
#include "tutorials/exercises/11_choose_stage/numbers.h"

namespace zl::exercises::choose_stage_checks {
namespace {

// [B/s] Of a ring that reaches the rates of its links.
double ring_rate(const Cluster& cluster, int ranks) {
  Machine machine;
  machine.ranks_per_node = cluster.gpus_per_node;
  machine.link.bandwidth = cluster.node_bandwidth;
  machine.link.ring = 1;
  machine.network.ports = 1;
  machine.network.bandwidth = cluster.network_bandwidth;
  machine.network.sums = machine.network.gathers = 1;
  return collective_model(machine, Collective::all_gather, 1, places_of(machine, ranks)).terms.bus;
}

double seconds(const ChoiceCase& c, int stage) {
  const Training& t = c.training;
  const int64_t parameters = std::accumulate(t.units.begin(), t.units.end(), int64_t(0));
  const double operations = 6.0 * double(parameters * t.tokens * t.micro_batches);
  const double sent = double(library_numbers(t, stage).sent);
  return operations / c.cluster.rate + (sent > 0 ? sent / ring_rate(c.cluster, t.ranks) : 0);
}

int choice(const ChoiceCase& c) {
  int best = -1;
  for (int stage = 0; stage < 4; ++stage) {
    const LibraryNumbers numbers = library_numbers(c.training, stage);
    if (numbers.peak > c.cluster.memory) continue;
    if (best < 0 || numbers.sent < library_numbers(c.training, best).sent) best = stage;
  }
  return best;
}

}  // namespace

double right_number(Asked asked, const ChoiceCase& c, int stage) {
  if (asked == Asked::seconds) return seconds(c, stage);
  if (asked == Asked::choice) return choice(c);
  const LibraryNumbers numbers = library_numbers(c.training, stage);
  return double(asked == Asked::kept   ? numbers.kept
                : asked == Asked::peak ? numbers.peak
                                       : numbers.sent);
}

bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

}  // namespace zl::exercises::choose_stage_checks
