#include "stages/predict/peaks.h"

#include <algorithm>
#include <utility>

#include "stages/steady_state.h"

namespace zl {
namespace {

class MicroBatch {
 public:
  explicit MicroBatch(const Passes& in) : in_(in), states_(in.units.size()) {}

  PassPeaks peaks() {
    const size_t last = states_.size() - 1, kept = first_kept_block(in_.units, in_.overlap);
    for (size_t u = 0; u <= last; ++u) {
      use(u, [last](size_t v) { return v < last ? v + 1 : 0; });
      if (u > 0 && u < kept) reshard(u);
    }
    const auto before = [last](size_t v) { return v == 0 ? last : v - 1; };
    use(0, before);
    gradients_.change(in_.units[0]);
    for (size_t u = last; u > 0; --u) {
      use(u, before);
      gradients_.change(in_.units[u]);
      reduce(u);
      reshard(u);
    }
    reduce(0);
    wait();
    return {parameters_.most, gradients_.most, in_flight_.most};
  }

 private:
  enum class State { sharded, in_flight, unsharded };
  struct Amount {
    int64_t now = 0, most = 0;
    void change(int64_t by) { most = std::max(most, now += by); }
  };

  void gather(size_t u) {
    in_flight_.change(in_.gather(in_.units[u]));
    parameters_.change(in_.units[u]);
    states_[u] = State::in_flight;
  }
  void reshard(size_t u) {
    parameters_.change(-in_.units[u]);
    states_[u] = State::sharded;
  }

  // Unit u is unsharded, then those that come next: `next` gives 0 after the last.
  template <class Next>
  void use(size_t u, Next next) {
    if (states_[u] == State::sharded) gather(u);
    if (states_[u] == State::in_flight) in_flight_.change(-in_.gather(in_.units[u]));
    states_[u] = State::unsharded;
    int64_t ahead = 0;
    for (size_t v = next(u); v != 0 && ahead < in_.overlap.prefetch_bucket_size; v = next(v)) {
      if (states_[v] == State::sharded) {
        if (in_.units[v] > in_.overlap.max_live_parameters - parameters_.now) return;
        gather(v);
      }
      ahead += in_.units[v];
    }
  }

  // Unit u joins a bucket, which is issued when it is full. One is in flight at most.
  void reduce(size_t u) {
    bucket_.push_back(in_.units[u]);
    filling_ += in_.units[u];
    if (filling_ < in_.bucket && u > 0) return;
    wait();
    filling_ = 0;
    for (const int64_t n : reducing_ = std::exchange(bucket_, {})) {
      in_flight_.change(in_.reduction(n)[0]);
      if (in_.freed_when_issued) gradients_.change(-n);
    }
    if (!in_.overlap.overlap_comm) wait();
  }
  void wait() {
    for (const int64_t n : std::exchange(reducing_, {})) {
      const std::vector<int64_t> changes = in_.reduction(n);
      for (size_t i = 1; i < changes.size(); ++i) in_flight_.change(changes[i]);
      if (!in_.freed_when_issued) gradients_.change(-n);
    }
  }

  const Passes& in_;
  std::vector<State> states_;
  std::vector<int64_t> bucket_, reducing_;  // [n] of each unit
  int64_t filling_ = 0;                     // [n] of the bucket
  Amount parameters_, gradients_, in_flight_;
};

}  // namespace

PassPeaks peaks_of(const Passes& passes) { return MicroBatch(passes).peaks(); }

}  // namespace zl
