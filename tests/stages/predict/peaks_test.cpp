// The closed formulas of the peaks against a second implementation, which follows the rules of the
// schedule unit by unit, on random units.

#include "stages/predict/peaks.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tensor/random.h"

using namespace zl;

namespace {

struct Draw {
  PhiloxStream random{18, 4};
  uint64_t index = 0;
  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(random.uniform(index++) * double(high - low + 1));
  }
};

// Stage 3's full parameters, as the rules say: what is unsharded when, and the most at one time.
class Schedule {
 public:
  Schedule(const std::vector<int64_t>& units, const Overlap& overlap)
      : units_(units), overlap_(overlap), unsharded_(units.size()) {}

  int64_t peak() {
    std::vector<size_t> forward, backward;
    for (size_t i = 0; i < units_.size(); ++i) forward.push_back(i);
    backward.push_back(0);
    for (size_t i = units_.size(); i-- > 1;) backward.push_back(i);
    pass(forward, [&](size_t unit) { return !stays(unit); });
    pass(backward, [](size_t) { return true; });
    return peak_;
  }
  int gathers() const { return gathers_; }

 private:
  void gather(size_t unit) {
    unsharded_[unit] = true;
    live_ += units_[unit];
    ++gathers_;
    peak_ = std::max(peak_, live_);
  }
  bool stays(size_t unit) const {
    int64_t after = 0;
    for (size_t i = unit + 1; i < units_.size(); ++i) after += units_[i];
    return 2 * after < overlap_.max_reuse_distance &&
           units_[0] + units_[unit] + after <= overlap_.max_live_parameters;
  }
  void prefetch(const std::vector<size_t>& order, size_t position) {
    int64_t window = 0;
    for (size_t i = position + 1; i < order.size() && window < overlap_.prefetch_bucket_size; ++i) {
      const size_t unit = order[i];
      window += units_[unit];
      if (unsharded_[unit]) continue;
      if (live_ + units_[unit] > overlap_.max_live_parameters) return;
      gather(unit);
    }
  }
  void pass(const std::vector<size_t>& order, const auto& reshards) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (!unsharded_[order[i]]) gather(order[i]);
      prefetch(order, i);
      if (order[i] == 0 || !reshards(order[i])) continue;
      unsharded_[order[i]] = false;
      live_ -= units_[order[i]];
    }
  }

  const std::vector<int64_t>& units_;
  const Overlap& overlap_;
  std::vector<bool> unsharded_;
  int64_t live_ = 0, peak_ = 0;
  int gathers_ = 0;
};

// Full gradients in backward, one by one; buckets are lists of sizes.
int64_t peak_of_gradients(const std::vector<int64_t>& units, int64_t bucket, bool overlap) {
  const auto sum = [](const std::vector<int64_t>& list) {
    int64_t n = 0;
    for (const int64_t size : list) n += size;
    return n;
  };
  std::vector<int64_t> live = {units[0]}, filling, in_flight;
  int64_t peak = sum(live);
  const auto free = [&](std::vector<int64_t>& list) {
    for (const int64_t size : list) live.erase(std::ranges::find(live, size));
    list.clear();
  };
  for (size_t i = units.size(); i-- > 1;) {
    live.push_back(units[i]);
    peak = std::max(peak, sum(live));
    filling.push_back(units[i]);
    if (sum(filling) < bucket) continue;
    free(in_flight);
    std::swap(in_flight, filling);
    if (!overlap) free(in_flight);
  }
  return peak;
}

std::vector<int64_t> random_units(Draw& draw) {
  std::vector<int64_t> units(size_t(draw.between(1, 8)));
  for (int64_t& n : units) n = 16 * draw.between(0, 9);
  return units;
}

Overlap random_overlap(Draw& draw) {
  const auto some = [&](int64_t most) {
    return draw.between(0, 2) == 0 ? 0 : draw.between(1, most);
  };
  Overlap overlap{.prefetch_bucket_size = some(600), .max_reuse_distance = some(1200)};
  if (draw.between(0, 1) == 1) overlap.max_live_parameters = draw.between(0, 1000);
  return overlap;
}

}  // namespace

TEST_CASE("the formula of full parameters is what the schedule holds, on 20,000 random cases",
          "[stages]") {
  Draw draw;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<int64_t> units = random_units(draw);
    const Overlap overlap = random_overlap(draw);
    Schedule schedule(units, overlap);
    const int64_t held = schedule.peak(), formula = peak_full_parameters(units, overlap);
    const int gathers = int(units.size() + first_reused_block(units, overlap)) - 1;
    if (held == formula && schedule.gathers() == gathers) continue;
    CAPTURE(i, units, overlap.prefetch_bucket_size, overlap.max_live_parameters,
            overlap.max_reuse_distance);
    CHECK(held == formula);
    CHECK(schedule.gathers() == gathers);
  }
  // The twin: with another limit the schedule differs.
  const std::vector<int64_t> units = {64, 32, 48, 16};
  const Overlap one{.prefetch_bucket_size = 1}, two{.prefetch_bucket_size = 49};
  CHECK(Schedule(units, two).peak() != peak_full_parameters(units, one));
}

TEST_CASE("the formula of full gradients is what backward holds, on 20,000 random cases",
          "[stages]") {
  Draw draw;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<int64_t> units = random_units(draw);
    const int64_t bucket = draw.between(0, 1) ? 1 : draw.between(1, 600);
    for (const bool overlap : {false, true}) {
      const int64_t held = peak_of_gradients(units, bucket, overlap),
                    formula = peak_full_gradients(units, bucket, overlap);
      if (held == formula) continue;
      CAPTURE(i, units, bucket, overlap);
      CHECK(held == formula);
    }
  }
  CHECK(peak_of_gradients({64, 32, 48, 16}, 1, true) !=
        peak_full_gradients({64, 32, 48, 16}, 1, false));
}
