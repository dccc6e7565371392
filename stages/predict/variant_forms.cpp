#include "stages/predict/variant_forms.h"

#include <algorithm>
#include <utility>

#include "stages/predict/peaks.h"
#include "tensor/backend.h"

namespace zl {
namespace {

// [n] of the scales of `rows` rows of n elements.
int64_t scales(int64_t rows, int64_t n) {
  return rows * ((n + Quantized::kGroup - 1) / Quantized::kGroup);
}

// [B] of the codes and scales of a unit that is gathered in 8 bits; 0 in other stages.
int64_t gather_bytes(const PredictionInput& in, int64_t n) {
  return file_of(in.options.stage).quantised(Purpose::parameter)
             ? n + 4 * scales(in.ranks, n / in.ranks)
             : 0;
}

// [B] of the buffers of a unit's reduction, change by change: the first when it is issued, the
// others while it is waited for. They add up to 0.
using Changes = std::vector<int64_t>;

// In zero3_qgz: what is sent and what is received inside the node, the fp32 sum for each node, what
// is sent and received between nodes, the sum.
Changes quantized_reduction(const PredictionInput& in, int64_t full) {
  const int64_t n = full / in.ranks, nodes = in.ranks / in.options.ranks_per_node,
                inside = full / 2 + 4 * scales(in.ranks, n),
                between = nodes * n / 2 + 4 * scales(nodes, n), sums = 4 * nodes * n;
  return {2 * inside, -inside,  sums,  -inside,  between, -sums,
          between,    -between, 4 * n, -between, -4 * n};
}

// The program points of a micro-batch in stage 3: what is in flight after each, and which units are
// unsharded. Units are those of PredictionInput, by index.
class InFlight {
 public:
  InFlight(const PredictionInput& in, std::vector<Changes> of_reductions)
      : in_(in), of_reductions_(std::move(of_reductions)), units_(in.units.size()) {}

  int64_t peak() {
    const size_t L = units_.size() - 1, kept = first_reused_block(in_.units, in_.options.overlap);
    for (size_t u = 0; u <= L; ++u) {
      use(u, [L](size_t v) { return v < L ? v + 1 : 0; });
      if (u > 0 && u < kept) units_[u] = State::sharded;
    }
    const auto before = [L](size_t v) { return v == 0 ? L : v - 1; };
    use(0, before);
    for (size_t u = L; u > 0; --u) {
      use(u, before);
      reduce(u);
      units_[u] = State::sharded;
    }
    reduce(0);
    wait();
    return most_;
  }

 private:
  enum class State { sharded, in_flight, unsharded };
  void change(int64_t bytes) { most_ = std::max(most_, now_ += bytes); }
  void gather(size_t u) {
    change(gather_bytes(in_, in_.units[u]));
    units_[u] = State::in_flight;
  }

  // Unit u is unsharded, then those that come next: `next` gives 0 after the last.
  template <class Next>
  void use(size_t u, Next next) {
    if (units_[u] == State::sharded) gather(u);
    if (units_[u] == State::in_flight) change(-gather_bytes(in_, in_.units[u]));
    units_[u] = State::unsharded;
    int64_t ahead = 0;
    for (size_t v = next(u); v != 0 && ahead < in_.options.overlap.prefetch_bucket_size;
         v = next(v)) {
      if (units_[v] == State::sharded) {
        if (in_.units[v] > in_.options.overlap.max_live_parameters - live()) return;
        gather(v);
      }
      ahead += in_.units[v];
    }
  }

  int64_t live() const {
    int64_t n = 0;
    for (size_t v = 0; v < units_.size(); ++v)
      if (units_[v] != State::sharded) n += in_.units[v];
    return n;
  }

  // Unit u joins a bucket, which is issued when it is full.
  void reduce(size_t u) {
    if (in_.units[u] > 0) bucket_.push_back(u);
    elements_ += in_.units[u];
    if (elements_ < in_.options.reduce_bucket_size && u > 0) return;
    wait();
    for (const size_t v : reducing_ = std::exchange(bucket_, {})) change(of_reductions_[v][0]);
    elements_ = 0;
    if (!in_.options.overlap.overlap_comm) wait();
  }
  void wait() {
    for (const size_t v : std::exchange(reducing_, {}))
      for (size_t i = 1; i < of_reductions_[v].size(); ++i) change(of_reductions_[v][i]);
  }

  const PredictionInput& in_;
  const std::vector<Changes> of_reductions_;
  std::vector<State> units_;
  std::vector<size_t> bucket_, reducing_;
  int64_t now_ = 0, most_ = 0;  // [B]
  int64_t elements_ = 0;        // [n] of the bucket
};

}  // namespace

int64_t peak_across(const PredictionInput& in, bool copied) {
  int64_t most = 0;
  for (const int64_t full : in.units) {
    const int replicas = in.options.replicas;
    const int64_t shard = full / in.options.ranks_per_node,
                  scratch = in.scratch ? shard / replicas * (replicas - 1) : 0;
    most = std::max(most, (copied ? shard : 0) + scratch);
  }
  return most;
}

int64_t peak_in_flight(const PredictionInput& in,
                       const std::function<int64_t(int64_t n)>& of_reduction) {
  std::vector<Changes> reductions;
  for (const int64_t n : in.units) {
    const int64_t bytes = of_reduction(n);
    reductions.push_back(file_of(in.options.stage).quantised(Purpose::gradient)
                             ? quantized_reduction(in, n)
                             : Changes{bytes, -bytes});
  }
  return InFlight(in, std::move(reductions)).peak();
}

}  // namespace zl
