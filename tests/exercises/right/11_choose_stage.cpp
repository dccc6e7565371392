// Exercise 11: choose a stage. task.md has the question, choose_stage.h the contract.
#include <algorithm>
#include <stdexcept>

#include "tutorials/exercises/11_choose_stage/choose_stage.h"

namespace zl::exercises {
//>
namespace {

int64_t padded(int64_t n, int ranks) {
  const int64_t step = 16 * ranks;
  return (n + step - 1) / step * step;
}

struct Sizes {  // [n] with padding
  explicit Sizes(const Training& t) {
    for (size_t i = 0; i < t.units.size(); ++i) {
      const int64_t n = padded(t.units[i], t.ranks);
      all += n;
      if (i == 0) root = n;
      if (i > 0) block = std::max(block, n);
    }
  }
  int64_t all = 0, root = 0, block = 0;
};

int64_t element_bytes(const Training& t) { return t.mixed ? 2 : 4; }

}  // namespace
//<

int64_t kept_bytes(const Training& training, int stage) {
  //> throw std::logic_error("not written yet: kept_bytes");
  const int64_t all = Sizes(training).all, shard = all / training.ranks;
  const int64_t parameters = stage >= 3 ? shard : all, gradients = stage >= 2 ? shard : all;
  const int64_t updated = stage >= 1 ? shard : all, optimizer = training.mixed ? 12 : 8;
  return (parameters + gradients) * element_bytes(training) + updated * optimizer;
  //<
}

// Which units are full at the same time, and in which stages?
int64_t peak_bytes(const Training& training, int stage) {
  //> throw std::logic_error("not written yet: peak_bytes");
  const Sizes sizes(training);
  const int64_t full = (sizes.root + sizes.block) * element_bytes(training);
  const int64_t gradients = stage >= 2 ? full : 0, parameters = stage >= 3 ? full : 0;
  return kept_bytes(training, stage) + gradients + parameters;
  //<
}

// How often does each unit go around the ring in a step?
int64_t sent_bytes(const Training& training, int stage) {
  //> throw std::logic_error("not written yet: sent_bytes");
  const Sizes sizes(training);
  const int64_t each = training.micro_batches;
  int64_t passes = 2 * sizes.all;
  if (stage == 2) passes = each * sizes.all + sizes.all;
  if (stage == 3) passes = each * (3 * sizes.all - sizes.root);
  return passes / training.ranks * (training.ranks - 1) * element_bytes(training);
  //<
}

double step_seconds(const Cluster& cluster, const Training& training, int stage) {
  //> throw std::logic_error("not written yet: step_seconds");
  double parameters = 0;
  for (const int64_t n : training.units) parameters += double(n);
  const double forward = 2 * parameters * double(training.tokens) / cluster.rate;
  const double backward = 2 * forward, A = double(training.micro_batches);
  const bool one_node = training.ranks <= cluster.gpus_per_node;
  const double rate = one_node ? cluster.node_bandwidth : cluster.network_bandwidth;
  const Sizes sizes(training);
  const auto pass = [&](int64_t n) {  // [s] once around the ring
    const int64_t shards = n / training.ranks * (training.ranks - 1);
    return double(shards * element_bytes(training)) / rate;
  };
  const double all = pass(sizes.all);
  if (stage == 0) return A * forward + (A - 1) * backward + std::max(backward, 2 * all);
  if (stage == 1) return A * forward + (A - 1) * backward + std::max(backward, all) + all;
  if (stage == 2) return A * (forward + std::max(backward, all)) + all;
  const double both = pass(2 * sizes.all - sizes.root);  // reduction, and second gather of blocks
  return A * (std::max(forward, all) + std::max(backward, both));
  //<
}

std::optional<int> choose_stage(const Cluster& cluster, const Training& training) {
  //> throw std::logic_error("not written yet: choose_stage");
  std::optional<int> best;
  double least = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    if (peak_bytes(training, stage) > cluster.memory) continue;
    const double seconds = step_seconds(cluster, training, stage);
    if (best && seconds >= least) continue;
    best = stage;
    least = seconds;
  }
  return best;
  //<
}

}  // namespace zl::exercises
