// The checks of exercise 12.
#include "tutorials/exercises/12_accumulate/accumulate_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using accumulate_checks::Way;

// What is right for a way, and what other numbers mean.
Numbers sent(const Way& w) {
  const double each = w.ring(w.A * w.all), once = w.ring(w.all);
  return {
      .must = {w.sent()},
      .known = {
          {2 * w.elements(), "the ring factor is missing: of N shards a rank sends N-1"},
          {w.sent() - each + once, "gradients are reduced in every micro-batch, not once"},
          {2 * each + w.ring(w.A * w.blocks),
           "a unit that stays full is gathered again: the next forward pass needs no gather"},
          {each + once,
           "a block is resharded after its forward pass, also with keep: each backward pass "
           "gathers it"},
          {3 * each, "root is gathered once in a micro-batch: it stays from forward to backward"}}};
}

Numbers peak(const Way& w) {
  const bool stay = w.keep && w.A > 1;
  double largest = 0;
  for (size_t u = 1; u < w.step.units.size(); ++u)
    largest = std::max(largest, double(w.step.units[u]));
  return {
      .must = {w.peak()},
      .known = {
          {w.peak_if(!stay),
           stay ? "with keep the blocks that have run backward stay full for the next micro-batch"
                : "nothing stays full: without keep, and with one micro-batch, each is resharded"},
          {16 * w.all / w.N + 2 * (w.all + w.root + largest),
           "not all blocks are full while the largest gradient is there: follow the backward "
           "pass"}}};
}

Numbers choice(const Way& w) {
  const Way reshards{w.step, false}, keeps{w.step, true};
  const bool fits = reshards.peak() <= double(w.memory),
             both = fits && keeps.peak() <= double(w.memory);
  return {
      .must = {!fits ? -1.0 : double(both && keeps.sent() < reshards.sent())},
      .known = {{1, both ? "both send the same: resharding needs no more memory"
                         : "to keep is chosen although its peak does not fit"},
                {0, fits ? "to keep fits, and sends less" : "a way is chosen that does not fit"},
                {-1, "a peak of exactly the memory fits"}},
      .details =
          str("\nmemory ", w.memory, " B; resharding holds ", int64_t(reshards.peak()),
              " B and sends ", int64_t(reshards.sent()), " B; keeping ", int64_t(keeps.peak()),
              " B and ", int64_t(keeps.sent()), " B (1: keep, 0: reshard, -1: none fits)")};
}

void check(Numbers (*right)(const Way&)) {
  const Record seen = observe();
  for (size_t k = 0; const Way& w : accumulate_checks::ways_of(options())) {
    std::string units;
    for (const int64_t n : w.step.units) units += str(" ", n);
    Numbers answer = right(w);
    answer.what = str("the answer with", w.keep ? "" : "out", " keep");
    answer.is = {seen.list("answers").at(k++)};
    answer.details = str(w.N, " ranks, ", w.A, " micro-batches, units", units, answer.details);
    compare(answer);
  }
}

}  // namespace

TEST_CASE("one micro-batch", "[12][sent][20 points]") { check(sent); }
TEST_CASE("sent", "[12][sent][25 points]") { check(sent); }
TEST_CASE("peak", "[12][peak][30 points]") { check(peak); }
TEST_CASE("the choice", "[12][choice][25 points]") { check(choice); }

}  // namespace zl::exercises
