// The checks of exercise 12.
#include "tutorials/exercises/12_accumulate/accumulate_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using accumulate_checks::Way;
using Known = std::vector<std::pair<double, std::string>>;  // a number, and what it means

Known sent_meanings(const Way& w, double is) {
  const double each = w.ring(w.A * w.all), must = w.sent();
  return {{w.N == 1 ? is : must * w.N / (w.N - 1),
           "the ring factor is missing: of N shards a rank sends N-1"},
          {must - each + w.ring(w.all), "gradients are reduced in every micro-batch, not once"},
          {2 * each + w.ring(w.A * w.blocks),
           "a unit that stays full is gathered again: the next forward pass needs no gather"},
          {each + w.ring(w.all),
           "a block is resharded after its forward pass, also with keep: each backward pass "
           "gathers it"},
          {3 * each, "root is gathered once in a micro-batch: it stays from forward to backward"}};
}

Known peak_meanings(const Way& w, double) {
  const bool stay = w.keep && w.A > 1;
  double largest = 0;
  for (size_t u = 1; u < w.step.units.size(); ++u)
    largest = std::max(largest, double(w.step.units[u]));
  return {
      {w.peak_if(!stay),
       stay ? "with keep the blocks that have run backward stay full for the next micro-batch"
            : "nothing stays full: without keep, and with one micro-batch, each is resharded"},
      {16 * w.all / w.N + 2 * (w.all + w.root + largest),
       "not all blocks are full while the largest gradient is there: follow the backward pass"}};
}

void check(const char* what, double (Way::*right)() const, Known (*meanings)(const Way&, double)) {
  const Record seen = observe();
  size_t k = 0;
  const auto steps = accumulate_checks::steps_of(options());
  for (const Accumulation& step : steps)
    for (const bool keep : {false, true}) {
      const Way way{step, keep};
      const double is = seen.list(what).at(k++), must = (way.*right)();
      if (is == must) continue;
      const std::string details = str(way.text(), ": ", int64_t(is), " B, must be ", int64_t(must));
      for (const auto& [value, meaning] : meanings(way, is))
        if (is == value) fail(meaning, details);
      fail(str("the bytes are wrong with", keep ? "" : "out", " keep"), details);
    }
}

}  // namespace

TEST_CASE("one micro-batch", "[12][sent][20 points]") { check("sent", &Way::sent, sent_meanings); }
TEST_CASE("sent", "[12][sent][25 points]") { check("sent", &Way::sent, sent_meanings); }
TEST_CASE("peak", "[12][peak][30 points]") { check("peak", &Way::peak, peak_meanings); }

TEST_CASE("the choice", "[12][choice][25 points]") {
  const Record seen = observe();
  size_t k = 0;
  const auto steps = accumulate_checks::steps_of(options());
  for (const Accumulation& step : steps)
    for (int i = 0; i < 4; ++i, ++k) {
      const Way reshards{step, false}, keeps{step, true};
      const double memory = seen.list("memory").at(k), is = seen.list("choice").at(k);
      const bool fits = reshards.peak() <= memory, both = fits && keeps.peak() <= memory,
                 less = keeps.sent() < reshards.sent();
      const double must = both ? less : fits ? 0 : -1;
      if (is == must) continue;
      const std::string details =
          str(reshards.text(), "\nmemory ", int64_t(memory), " B; resharding holds ",
              int64_t(reshards.peak()), " B and sends ", int64_t(reshards.sent()), " B; keeping ",
              int64_t(keeps.peak()), " B and ", int64_t(keeps.sent()), " B\nyours: ", is,
              ", must be ", must, " (1: keep, 0: reshard, -1: none fits)");
      fail(is == 1 && !both ? "to keep is chosen although its peak does not fit"
           : is == 1        ? "both send the same: resharding needs no more memory"
           : is == 0 ? fits ? "to keep fits, and sends less" : "a way is chosen that does not fit"
                     : "a peak of exactly the memory fits",
           details);
    }
}

}  // namespace zl::exercises
