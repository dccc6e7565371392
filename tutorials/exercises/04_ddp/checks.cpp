// The checks of exercise 04. What is wrong with a gradient is seen in rank 0's calls first, and
// only then in its values.
#include <algorithm>
#include <map>

#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

// Units that are reduced together, and in which call of the last micro-batch's loop.
struct Bucket {
  std::vector<size_t> units;
  int64_t place, elements = 0;
};

struct DdpEvidence {
  DdpCase c = ddp_case(options());
  Record seen = observe();
  std::vector<ReduceCall> calls;

  DdpEvidence() {
    const std::string error = seen.text("communication");
    if (error.find("dropped the Work") != error.npos)
      fail("a Work was destroyed before wait() was called on it", error);
    if (!error.empty())
      fail("the ranks make different calls, or the same calls in another order", error);
    calls = seen.rows<ReduceCall>("calls 0");
  }
  std::string unit(const ReduceCall& call) const { return c.unit_name(size_t(call.unit)); }
};

std::vector<Bucket> right_buckets(const DdpEvidence& e, size_t step) {
  const std::vector<size_t>& ready = e.c.ready[step].back();
  const int64_t done = std::ssize(ready);
  std::vector<Bucket> buckets;
  bool full = true;
  const auto add = [&](size_t unit, int64_t place) {
    if (full) buckets.emplace_back();
    buckets.back().units.push_back(unit);
    full = (buckets.back().elements += e.c.sizes[unit]) >= e.c.bucket_size;
    buckets.back().place = full ? place : done;
  };
  for (int64_t place = 0; place < done; ++place) add(ready[size_t(place)], place);
  for (size_t u = e.c.sizes.size(); u-- > 0;)
    if (e.c.used(step, u) && std::ranges::count(ready, u) == 0) add(u, done);
  return buckets;
}

void check_calls(const DdpEvidence& e) {
  const size_t steps = e.c.ready.size(), passes = e.c.ready[0].size();
  std::map<std::pair<size_t, size_t>, int> made;  // by step and unit
  for (const ReduceCall& call : e.calls) {
    const size_t step = size_t(call.step), unit = size_t(call.unit);
    std::string details = str(call.count, " elements in ", e.c.place_text(call, call.place));
    if (call.unit < 0 || call.count != e.c.sizes[unit])
      fail("an all-reduce of a tensor that is no unit's gradient: reduce each in place", details);
    details = e.unit(call) + ": " + details;
    if (size_t(call.micro_batch) + 1 < passes)
      fail(size_t(std::ranges::count(e.calls, call.unit, &ReduceCall::unit)) == passes * steps
               ? "every micro-batch is reduced, which is as many times the calls and the bytes"
               : "a gradient is reduced before the last micro-batch has added to it",
           details);
    if (++made[{step, unit}] > 1) fail("a unit is reduced more than once in a step", details);
    if (!e.c.used(step, unit))
      fail("a unit is reduced that this step has not used: clear the state of each step", details);
  }
  for (size_t step = 0; step < steps; ++step)
    for (size_t left = right_buckets(e, step).size(); const Bucket& b : right_buckets(e, step)) {
      --left;
      for (const size_t u : b.units)
        if (made[{step, u}] == 0)
          fail(!e.c.used(step, u, passes - 1)
                   ? "a unit that was ready in earlier micro-batches only is never reduced"
               : left == 0 ? "the last bucket, which is not full, is never reduced"
                           : "a unit is never reduced",
               str(e.c.unit_name(u), " in step ", step + 1));
    }
}

void check_waited(const DdpEvidence& e) {
  for (const ReduceCall& call : e.calls)
    if (call.waited < 0)
      fail("the update begins before a Work was waited for",
           e.unit(call) + ": its all-reduce began in " + e.c.place_text(call, call.place));
}

void check_gradients(const DdpEvidence& e) {
  const DdpCase& c = e.c;
  const double N = c.ranks, A = double(c.ready[0].size());
  for (size_t step = 0; step < c.ready.size(); ++step) {
    std::vector<std::vector<double>> must;
    for (const int64_t size : c.sizes) must.emplace_back(size);
    for (size_t m = 0; m < c.ready[step].size(); ++m)
      for (const size_t u : c.ready[step][m])
        for (int64_t i = 0; i < c.sizes[u] * c.ranks; ++i)
          must[u][size_t(i / c.ranks)] +=
              double(c.gradient(int(i % c.ranks), step, m, u, i / c.ranks)) / N;
    for (int rank = 0; rank < c.ranks; ++rank)
      for (size_t u = 0; u < must.size(); ++u) {
        const auto& is = e.seen.of(str("gradient ", step, " ", u), rank);
        if (is == must[u]) continue;
        check_calls(e);
        check_waited(e);
        compare({.what = str("the gradient of ", c.unit_name(u), " on rank ", rank,
                             step == 0 ? "" : " in the second step, not in the first,"),
                 .is = is,
                 .must = must[u],
                 .tolerance = 1e-5,
                 .factors = {{"N, a sum over ranks and not a mean", N},
                             {"A, the number of micro-batches, which the optimizer does later", A},
                             {"N/2, which is 1 at 2 ranks only", N / 2}}});
      }
  }
  if (c.ready[0].size() > 1) check_calls(e);
}

// The last bucket of `is` need not be full.
std::string meaning_of_buckets(const DdpEvidence& e, const std::vector<Bucket>& is) {
  const int64_t full = e.c.bucket_size;
  if (is.size() == 1) return "one bucket holds all units: nothing is reduced while backward runs";
  bool bytes = true, alone = true;
  std::string meaning = "units are in other buckets than the rule says";
  for (size_t b = is.size() - 1; b-- > 0;) {
    const int64_t n = is[b].elements, before = n - e.c.sizes[is[b].units.back()];
    bytes = bytes && 4 * n >= full && 4 * before < full;
    if (n < full)
      meaning = str("a bucket is reduced before ", n + e.c.sizes[is[b + 1].units[0]] < full
                                                       ? "it is full"
                                                       : "the unit that makes it full joins it");
    if (before == full)
      meaning = "a bucket of exactly bucket_size elements is full, but is not reduced";
    if (b == 0 && alone)
      meaning = before == 0 ? "every unit is reduced alone: buckets have one unit each"
                            : "after the first bucket the count of elements does not restart";
    alone = alone && before == 0;
  }
  return bytes ? "buckets are 4 times too small: bucket_size counts elements, not bytes" : meaning;
}

}  // namespace

TEST_CASE("one rank", "[04][means][10 points]") { check_gradients({}); }
TEST_CASE("means at 2 ranks", "[04][means][10 points]") { check_gradients({}); }
TEST_CASE("means at 3 ranks", "[04][means][10 points]") { check_gradients({}); }
TEST_CASE("three micro-batches", "[04][accumulation][15 points]") { check_gradients({}); }
TEST_CASE("unused units", "[04][accumulation][20 points]") { check_gradients({}); }

TEST_CASE("buckets", "[04][buckets][20 points]") {
  const DdpEvidence e;
  check_calls(e);
  const std::vector<Bucket> right = right_buckets(e, 0);
  std::vector<Bucket> is;
  int64_t group = -1;
  for (const ReduceCall& call : e.calls) {  // calls outside of groups are alone
    if (call.group < 0 || call.group != group) is.push_back({{}, call.place});
    is.back().units.push_back(size_t(call.unit));
    is.back().elements += call.count;
    group = call.group;
  }
  std::string details = str("bucket_size ", e.c.bucket_size, "; buckets were");
  const auto add = [&](const Bucket& b) {
    details += str("\n  ", b.elements, " elements in ", e.c.place_text(e.calls[0], b.place), ":");
    for (const size_t u : b.units) details += " " + e.c.unit_name(u);
  };
  std::ranges::for_each(is, add);
  details += "\nmust be";
  std::ranges::for_each(right, add);
  const auto alike = [](const Bucket& a, const Bucket& b) {
    return std::ranges::is_permutation(a.units, b.units);
  };
  if (group < 0) fail("no call is between begin_group() and end_group()", details);
  if (!std::ranges::equal(is, right, alike)) fail(meaning_of_buckets(e, is), details);
  if (!std::ranges::equal(is, right, {}, &Bucket::place, &Bucket::place))
    fail("the buckets are right, but not all are reduced when they are full", details);
}

TEST_CASE("overlap", "[04][overlap][15 points]") {
  const DdpEvidence e;
  check_calls(e);
  const int64_t done = std::ssize(e.c.ready[0][0]);
  for (const ReduceCall& call : e.calls)
    if (call.waited >= 0 && call.waited < done)
      fail("waits while backward runs: backward cannot go on before the bucket is reduced",
           e.unit(call) + " is waited for in " + e.c.place_text(call, call.waited));
  if (std::ranges::none_of(e.calls, [&](const ReduceCall& call) { return call.place < done; }))
    fail("nothing is reduced while backward runs", "all calls follow the last gradient_ready()");
  check_waited(e);
}

}  // namespace zl::exercises
