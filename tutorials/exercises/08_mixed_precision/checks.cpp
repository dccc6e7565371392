// The checks of exercise 08: each step is expected from what was observed before it.
#include <algorithm>

#include "optim/clip.h"
#include "tutorials/exercises/08_mixed_precision/precision_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

struct PrecisionEvidence {
  PrecisionCase c = precision_case(options());
  Record seen = observe();

  // State before step `step`, or what happened in it.
  Values list(const char* name, int rank, size_t step) const {
    return seen.of(str(name, " ", step), rank);
  }
  double number(const char* name, int rank, size_t step) const {
    return list(name, rank, step).at(0);
  }
};

std::string in(size_t step, int rank) { return str("step ", step + 1, ", rank ", rank); }

Values rounded(const Values& values) {
  Values all;
  for (const double x : values) all.push_back(double(float(f16(float(x)))));
  return all;
}

// Whether f16 holds all values that are there, although it does not hold those that must be.
bool only_f16(const Values& is, const Values& must) {
  return !is.empty() && is == rounded(is) && must != rounded(must);
}

void check_weights(const PrecisionEvidence& e, size_t step, int rank) {
  const Values is = e.list("master", rank, step);
  const bool first = step == 0;
  const std::string where = first ? str("at first, rank ", rank) : "after " + in(step - 1, rank);
  const Values before = first ? Values() : e.list("master", rank, step - 1);
  Values must = before;
  for (int64_t i = 0; i < e.c.n && first; ++i) must.push_back(double(e.c.initial(rank, i)));
  if (!first && !e.c.overflow(step - 1))
    for (size_t i = 0; const double g : e.list("gradient", rank, step - 1)) {
      must[i] = double(float(must[i]) - e.c.rate * float(g));
      ++i;
    }
  if (only_f16(is, must))
    fail("the master weights are rounded to f16: what f16 cannot hold is lost", where);
  compare({.what = "the fp32 copy of the weights (" + where + ")",
           .is = is,
           .must = must,
           .tolerance = 1e-6,
           .before = before});
  if (e.list("parameters", rank, step) != rounded(is))
    fail("the parameters are not the rounded master weights", where);
}

// ---- the loss scale ----------------------------------------------------------------------------

Values right_scales(const PrecisionCase& c) {
  Values all = {c.scale};
  for (int good = 0; all.size() <= c.steps;) {
    const bool overflow = c.overflow(all.size() - 1), doubles = !overflow && ++good == c.window;
    if (overflow || doubles) good = 0;
    all.push_back(overflow ? std::max(all.back() / 2, c.min_scale)
                           : all.back() * (doubles ? 2 : 1));
  }
  return all;
}

void check_scale(const PrecisionEvidence& e, size_t step, int rank) {
  const PrecisionCase& c = e.c;
  const Values right = right_scales(c);
  const double is = e.number("scale", rank, step), must = right[step];
  if (is == must) return;
  std::string details = str("window ", c.window, ", min_scale ", c.min_scale, "; rank ", rank,
                            "'s scale before each step (must be):");
  for (size_t s = 0; s <= c.steps; ++s)
    details +=
        str(" ", e.number("scale", rank, s), " (", right[s], ")", c.overflow(s) ? " overflow" : "");
  if (step == 0) fail("the first scale is not initial_scale", details);
  const double before = right[step - 1];
  if (is == before && must > before)
    fail("the scale does not double after `window` good steps in a row", details);
  if (is == before && must == c.min_scale) fail("the scale stops above min_scale", details);
  if (is < c.min_scale) fail("the scale falls below min_scale", details);
  if (c.overflow(step - 1))
    fail(str("an overflow makes the scale ", is / before, " x what it was, not half"), details);
  size_t first = step - 1;  // of the good steps
  while (first > 0 && !c.overflow(first - 1) && right[first - 1] == before) --first;
  const char* since = first == 0              ? "the start"
                      : c.overflow(first - 1) ? "an overflow"
                                              : "it was doubled";
  fail(str("the scale is multiplied by ", is / before, " after ", step - first,
           " good steps since ", since, ", where the count begins at 0; `window` is ", c.window),
       details);
}

// ---- steps -------------------------------------------------------------------------------------

void check_skipped(const PrecisionEvidence& e, size_t step) {
  const Overflow& o = *e.c.overflow(step);
  const std::string details =
      str("an element of rank ", o.rank, "'s gradient is ", o.value, " in step ", step + 1);
  int updated = 0;
  for (int rank = 0; rank < e.c.ranks; ++rank) {
    const bool calls = e.number("calls", rank, step) > 0;
    updated += calls;
    if (calls && e.number("skipped", rank, step) == 1)
      fail("a skipped step calls the optimizer: its moments and its steps advance", details);
  }
  if (updated == e.c.ranks)
    fail(str(o.value, " in the gradient is not noticed: the step is not skipped"), details);
  if (updated > 0) fail("the ranks do not agree: some skip the step and others update", details);
  for (int rank = 0; rank < e.c.ranks; ++rank)
    if (e.number("skipped", rank, step) != 1 || std::isfinite(e.number("norm", rank, step)))
      fail("step() must return skipped = true and a norm that is not finite", details);
}

void check_updated(const PrecisionEvidence& e, size_t step) {
  const double scale = e.number("scale", 0, step);
  std::vector<Values> gradients(size_t(e.c.ranks));
  Values squares;  // of each rank's gradient
  double sum = 0, sum_of_norms = 0;
  for (int rank = 0; rank < e.c.ranks; ++rank) {
    squares.push_back(0);
    for (int64_t i = 0; i < e.c.n; ++i) {
      const double g = double(float(e.c.scaled_gradient(rank, step, i, scale))) / scale;
      gradients[size_t(rank)].push_back(g);
      squares.back() += g * g;
    }
    sum += squares.back(), sum_of_norms += std::sqrt(squares.back());
  }
  const double right_norm = std::sqrt(sum), clip = clip_factor(right_norm, e.c.max_norm);
  for (int rank = 0; rank < e.c.ranks; ++rank) {
    Values& must = gradients[size_t(rank)];
    const double is = e.number("norm", rank, step), next = e.number("scale", rank, step + 1);
    if (e.number("calls", rank, step) != 1 || e.number("skipped", rank, step) != 0)
      fail("a step whose gradient is finite calls the optimizer once, and returns skipped = false",
           in(step, rank));
    if (only_f16(e.list("gradient", rank, step), must))
      fail("the gradient is unscaled in f16, which loses small values", in(step, rank));
    const auto near = [&](double value) { return std::abs(is - value) <= 1e-5 * value; };
    if (!near(right_norm))
      fail(near(right_norm * scale) ? "the norm is that of the scaled gradient"
           : near(std::sqrt(squares[size_t(rank)]))
               ? "the norm is that of this rank's shard, not of all ranks"
           : near(sum_of_norms) ? "the norm is the sum of the ranks' norms: add their squares"
                                : "the norm is wrong: add all squares, then take the root",
           str(in(step, rank), ": ", is, ", must be ", right_norm));
    for (double& g : must) g *= clip;
    compare(
        {.what = "the gradient for the optimizer (" + in(step, rank) + ")",
         .is = e.list("gradient", rank, step),
         .must = must,
         .tolerance = 1e-5,
         .factors = {
             {"1 / clip_factor(norm, max_norm): it is not clipped", 1 / clip},
             {"max_norm / norm: clipping must not enlarge it",
              std::max(1.0, e.c.max_norm / right_norm)},
             {"the loss scale: is the gradient, or the norm for clipping, still scaled?", scale},
             {"next scale / this scale: unscale by this one", next / scale}}});
  }
}

void check_steps() {
  const PrecisionEvidence e;
  if (const std::string error = e.seen.text("communication"); !error.empty())
    fail("the ranks do not make the same calls: all take part in each step", error);
  for (size_t step = 0;; ++step) {
    for (int rank = 0; rank < e.c.ranks; ++rank) {
      check_weights(e, step, rank);
      check_scale(e, step, rank);
    }
    if (step == e.c.steps) return;
    e.c.overflow(step) ? check_skipped(e, step) : check_updated(e, step);
  }
}

}  // namespace

TEST_CASE("one rank", "[08][one rank][10 points]") { check_steps(); }
TEST_CASE("tiny updates", "[08][precision][10 points]") { check_steps(); }
TEST_CASE("small gradients", "[08][precision][10 points]") { check_steps(); }
TEST_CASE("norm and clipping", "[08][clipping][15 points]") { check_steps(); }
TEST_CASE("overflow", "[08][overflow][25 points]") { check_steps(); }
TEST_CASE("overflow on one rank", "[08][overflow][10 points]") { check_steps(); }
TEST_CASE("scale", "[08][scale][10 points]") { check_steps(); }
TEST_CASE("smallest scale", "[08][scale][10 points]") { check_steps(); }

}  // namespace zl::exercises
