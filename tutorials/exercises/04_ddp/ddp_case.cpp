#include "tutorials/exercises/04_ddp/ddp_case.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "tensor/error.h"
#include "tensor/random.h"

namespace zl::exercises {
namespace {

class Draw {
 public:
  Draw(uint64_t seed, const std::string& check) : stream_{seed, fnv1a(check)} {}
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.block(next_++)[0] % uint64_t(high - low + 1));
  }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

// From the last unit to the first, as in backward, but one unit comes later than its neighbour.
std::vector<size_t> backward_order(size_t units, Draw& draw) {
  std::vector<size_t> order(units);
  std::iota(order.rbegin(), order.rend(), size_t(0));
  const size_t late = size_t(draw.between(2, int64_t(units) - 2));
  std::swap(order[late], order[late - 1]);
  return order;
}

std::vector<size_t> without(std::vector<size_t> order, std::vector<size_t> units) {
  std::erase_if(order, [&](size_t u) { return std::ranges::count(units, u) > 0; });
  return order;
}

struct Outline {
  int ranks;
  size_t micro_batches, steps;
  bool buckets;
};
Outline outline(const std::string& check, Draw& draw) {
  if (check == "one rank") return {1, 1, 1, false};
  if (check == "means at 2 ranks") return {2, 1, 1, false};
  if (check == "means at 3 ranks") return {3, 1, 1, true};
  if (check == "three micro-batches") return {2, 3, 1, true};
  if (check == "unused units") return {int(draw.between(2, 4)), 3, 1, true};
  if (check == "two steps") return {int(draw.between(2, 4)), 2, 2, true};
  if (check == "traffic") return {int(draw.between(3, 5)), 3, 1, true};
  if (check == "buckets") return {int(draw.between(2, 4)), 2, 1, true};
  if (check == "overlap") return {int(draw.between(2, 4)), 1, 1, true};
  throw InputError("exercise 04 has no check '" + check + "'");
}

constexpr BucketRule kBucketRules[] = {BucketRule::right, BucketRule::above_size,
                                       BucketRule::at_most_size, BucketRule::bytes,
                                       BucketRule::never_restarts};

std::vector<std::vector<size_t>> units_of(const std::vector<DdpBucket>& buckets) {
  std::vector<std::vector<size_t>> units;
  for (const DdpBucket& bucket : buckets) units.push_back(bucket.units);
  return units;
}

// At least three buckets, the first of which is full to the element, and the last one is not full.
// all_rules: the other rules lead to other buckets than this one, and to units alone.
bool shows_buckets(const DdpCase& c, bool all_rules) {
  const auto buckets = ddp_buckets(c, 0, BucketRule::right);
  int64_t last = 0;
  for (const size_t u : buckets.back().units) last += c.sizes[u];
  if (buckets.size() < 3 || last >= c.bucket_size) return false;
  if (!all_rules) return true;
  std::set<std::vector<std::vector<size_t>>> all;
  for (const BucketRule rule : kBucketRules) {
    const auto& units = *all.insert(units_of(ddp_buckets(c, 0, rule))).first;
    if (units.size() >= c.ready[0].back().size()) return false;
  }
  return all.size() == std::size(kBucketRules);
}

void leave_out_units(const std::string& check, DdpCase& c) {
  const size_t n = c.sizes.size();
  for (size_t step = 0; step < c.ready.size(); ++step) {
    auto& passes = c.ready[step];
    if (check == "unused units") {  // unit 2 only in the first, n - 2 in two, 1 in none
      passes[0] = without(passes[0], {1});
      passes[1] = without(passes[1], {1, 2});
      passes[2] = without(passes[2], {1, 2, n - 2});
    }
    // Unit 2 only in the first micro-batch of the first step, and not in the second step.
    if (check == "two steps") passes[1] = without(passes[1], {2});
    if (check == "two steps" && step == 1) passes[0] = without(passes[0], {2});
  }
}

}  // namespace

std::string DdpCase::unit_name(size_t unit) const {
  return unit == 0 ? "root" : str("h.", unit - 1);
}

int64_t DdpCase::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
}

float DdpCase::gradient(int rank, size_t step, size_t micro_batch, size_t unit, int64_t i) const {
  const uint64_t stream = ((uint64_t(rank) * 64 + step) * 64 + micro_batch) * 64 + unit;
  const PhiloxStream random{seed, stream};
  return float((int(random.block(uint64_t(i))[1] % 33) - 16) * ranks);
}

DdpCase ddp_case(const std::string& check, uint64_t seed) {
  Draw draw(seed, check);
  const Outline o = outline(check, draw);
  DdpCase c;
  c.seed = seed ^ fnv1a(check);
  c.ranks = o.ranks;
  do {
    const size_t units = size_t(draw.between(8, 10));
    c.sizes.clear();
    for (size_t u = 0; u < units; ++u) c.sizes.push_back(2 * draw.between(3, 60) + 1);
    const std::vector<size_t> order = backward_order(units, draw);
    c.ready.assign(o.steps, std::vector(o.micro_batches, order));
    leave_out_units(check, c);
    const auto& last = c.ready[0].back();
    c.bucket_size = o.buckets ? c.sizes[last[0]] + c.sizes[last[1]] + c.sizes[last[2]] : 1;
  } while (o.buckets && !shows_buckets(c, check == "buckets"));
  return c;
}

std::vector<double> encode(const std::vector<DdpEvent>& events) {
  std::vector<double> numbers;
  for (const DdpEvent& e : events)
    for (const double x : {double(e.kind), double(e.a), double(e.b), double(e.c)})
      numbers.push_back(x);
  return numbers;
}

std::vector<DdpEvent> decode_events(const std::vector<double>& numbers) {
  std::vector<DdpEvent> events;
  for (size_t i = 0; i + 3 < numbers.size(); i += 4)
    events.push_back({DdpEvent::Kind(int(numbers[i])), int64_t(numbers[i + 1]),
                      int64_t(numbers[i + 2]), int64_t(numbers[i + 3])});
  return events;
}

std::vector<DdpBucket> ddp_buckets(const DdpCase& c, size_t step, BucketRule rule) {
  const auto& passes = c.ready[step];
  const int64_t last = int64_t(passes.size()) - 1;
  std::vector<DdpBucket> buckets;
  std::vector<size_t> units;
  int64_t elements = 0;
  const auto reduce = [&](const DdpEvent& at) {
    buckets.push_back({std::exchange(units, {}), at});
    if (rule != BucketRule::never_restarts) elements = 0;
  };
  const auto add = [&](size_t u, const DdpEvent& at) {
    const int64_t n = c.sizes[u];
    if (rule == BucketRule::at_most_size && !units.empty() && elements + n > c.bucket_size)
      reduce(at);
    units.push_back(u);
    elements += rule == BucketRule::bytes ? 4 * n : n;
    const bool full = rule == BucketRule::above_size     ? elements > c.bucket_size
                      : rule == BucketRule::at_most_size ? false
                                                         : elements >= c.bucket_size;
    if (full) reduce(at);
  };
  for (const size_t u : passes.back()) add(u, {DdpEvent::gradient_ready, int64_t(u), last});
  const DdpEvent done{DdpEvent::backward_done, 0, last};
  for (size_t u = c.sizes.size(); u-- > 0;) {
    const auto has = [u](const auto& pass) { return std::ranges::count(pass, u) > 0; };
    if (!has(passes.back()) && std::ranges::any_of(passes, has)) add(u, done);
  }
  if (!units.empty()) reduce(done);
  return buckets;
}

}  // namespace zl::exercises
