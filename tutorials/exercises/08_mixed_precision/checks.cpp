// The checks of exercise 08: each step is expected from what was observed before it.
#include <numeric>

#include "optim/clip.h"
#include "tutorials/exercises/08_mixed_precision/precision_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

Values rounded(Values values) {
  for (double& x : values) x = double(float(f16(float(x))));
  return values;
}

// Whether f16 holds all values that are there, although it does not hold those that must be.
bool only_f16(const Values& is, const Values& must) {
  return !is.empty() && is == rounded(is) && must != rounded(must);
}

// One step on all ranks, and what is right before it.
struct Step {
  const PrecisionCase& c;
  const Record& seen;
  std::vector<Values> master = c.initial;
  double scale = c.options.initial_scale;
  int good = 0;  // steps in a row
  const char* since = "the start";
  size_t step = 0;
  bool overflow = c.overflows.contains(0);

  const Values& list(const char* name, int rank, size_t after = 0) const {
    return seen.of(str(name, " ", step + after), rank);
  }
  double number(const char* name, int rank, size_t after = 0) const {
    return list(name, rank, after).at(0);
  }
  std::string at(int rank) const { return str("step ", step + 1, ", rank ", rank); }

  void check_weights(int rank, const Values& must, size_t after, const Values& before = {}) const {
    const Values& is = list("master", rank, after);
    const std::string where = (after ? "after " : "before ") + at(rank);
    compare({.what = "the fp32 copy of the weights (" + where + ")",
             .is = is,
             .must = must,
             .tolerance = 1e-6,
             .before = before,
             .meaning = only_f16(is, must) ? "the master weights are rounded to f16: what f16 "
                                             "cannot hold is lost"
                                           : ""});
    if (list("parameters", rank, after) != rounded(is))
      fail("the parameters are not the rounded master weights", where);
  }

  void check_skipped() const {
    const float value = c.overflows.at(step);
    int updated = 0, skipped = 0, both = 0, finite = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const bool updates = number("calls", rank) > 0, skips = number("skipped", rank) == 1;
      updated += updates, skipped += skips, both += updates && skips;
      finite += std::isfinite(number("norm", rank));
    }
    if (updated == 0 && skipped == c.ranks && finite == 0) return;
    fail(both > 0 ? "a skipped step calls the optimizer: its moments and its steps advance"
         : updated == c.ranks
             ? str(value, " in the gradient is not noticed: the step is not skipped")
         : updated > 0 ? "the ranks do not agree: some skip the step and others update"
                       : "step() must return skipped = true and a norm that is not finite",
         str("an element of one rank's gradient is ", value, " in step ", step + 1));
  }

  void check_norm(int rank, double norm, const Values& norms) const {
    const double is = number("norm", rank);
    const auto near = [&](double value) { return std::abs(is - value) <= 1e-5 * value; };
    if (near(norm)) return;
    fail(near(norm * scale)          ? "the norm is that of the scaled gradient"
         : near(norms[size_t(rank)]) ? "the norm is that of this rank's shard, not of all ranks"
         : near(std::accumulate(norms.begin(), norms.end(), 0.0))
             ? "the norm is the sum of the ranks' norms: add their squares"
             : "the norm is wrong: add all squares, then take the root",
         str(at(rank), ": ", is, ", must be ", norm));
  }

  void check_updated() const {
    Values norms;
    for (const Values& g : c.gradients[step])
      norms.push_back(std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0)));
    const double norm =
                     std::sqrt(std::inner_product(norms.begin(), norms.end(), norms.begin(), 0.0)),
                 most = c.options.max_norm, clip = clip_factor(norm, most);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Values must = c.gradients[step][size_t(rank)];
      const Values& given = list("gradient", rank);
      if (number("calls", rank) != 1 || number("skipped", rank) != 0)
        fail(
            "a step whose gradient is finite calls the optimizer once, and returns skipped = false",
            at(rank));
      if (only_f16(given, must))
        fail("the gradient is unscaled in f16, which loses small values", at(rank));
      check_norm(rank, norm, norms);
      for (double& g : must) g *= clip;
      compare(
          {.what = "the gradient for the optimizer (" + at(rank) + ")",
           .is = given,
           .must = must,
           .tolerance = 1e-5,
           .factors = {
               {"1 / clip_factor(norm, max_norm): it is not clipped", 1 / clip},
               {"max_norm / norm: clipping must not enlarge it", std::max(1.0, most / norm)},
               {"the loss scale: is the gradient, or the norm for clipping, still scaled?", scale},
               {"next scale / this scale: unscale by this one",
                number("scale", rank, 1) / scale}}});
    }
  }

  void check_scale(int rank, double must) const {
    const double is = number("scale", rank, 1);
    if (is == must) return;
    const auto& [initial, window, least, _] = c.options;
    fail(is == scale && must > scale
             ? "the scale does not double after `window` good steps in a row"
         : is == scale && must == least ? "the scale stops above min_scale"
         : is < least                   ? "the scale falls below min_scale"
         : overflow ? str("an overflow makes the scale ", is / scale, " x what it was, not half")
                    : str("the scale is multiplied by ", is / scale, " after ", good + 1,
                          " good steps since ", since,
                          ", where the count begins at 0; `window` is ", window),
         str(at(rank), ": from ", scale, " to ", is, ", must be ", must, "; window ", window,
             ", min_scale ", least));
  }

  void check_and_advance() {
    overflow ? check_skipped() : check_updated();
    const bool doubles = !overflow && good + 1 == c.options.window;
    const double next =
        overflow ? std::max(scale / 2, c.options.min_scale) : scale * (doubles ? 2 : 1);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Values &must = master[size_t(rank)], before = must;
      for (size_t i = 0; !overflow && i < must.size(); ++i)
        must[i] = double(float(must[i]) - kRate * float(list("gradient", rank)[i]));
      check_weights(rank, must, 1, before);
      check_scale(rank, next);
    }
    if (overflow || doubles) good = -1, since = overflow ? "an overflow" : "it was doubled";
    ++good, scale = next, overflow = c.overflows.contains(++step);
  }
};

void check_steps() {
  const PrecisionCase c = precision_case(options());
  const Record seen = observe();
  if (const std::string error = seen.text("communication"); !error.empty())
    fail("the ranks do not make the same calls: all take part in each step", error);
  Step step{c, seen};
  for (int rank = 0; rank < c.ranks; ++rank) {
    step.check_weights(rank, c.initial[size_t(rank)], 0);
    if (step.number("scale", rank) != step.scale) fail("the first scale is not initial_scale");
  }
  while (step.step < c.steps) step.check_and_advance();
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
