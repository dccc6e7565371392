// The checks of exercise 01. Gradients are expected by central differences: no formula of the
// solution is here.

#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using rms_norm_checks::Case;

struct RmsNormEvidence {
  Record seen = observe();
  Case c = rms_norm_checks::make_case(options());
  size_t C = size_t(c.C());
  Values x{c.x.begin(), c.x.end()}, weight{c.weight.begin(), c.weight.end()},
      before{c.before.begin(), c.before.end()};
  double number(const char* name) const { return seen.number(name); }

  Values y() const { return c.twice ? y_of(y_of(x)) : y_of(x); }
  Values y_of(const Values& x) const {
    Values all;
    for (size_t begin = 0; begin < x.size(); begin += C) {
      double squares = 0;
      for (size_t k = begin; k < begin + C; ++k) squares += x[k] * x[k];
      for (size_t k = 0; k < C; ++k)
        all.push_back(x[begin + k] / std::sqrt(squares / double(C) + c.eps) * weight[k]);
    }
    return all;
  }
  // The gradient of sum(dy * y) by `inputs`, which are x or weight, by central differences of
  // fourth order.
  Values differences(Values& inputs) const {
    Values result;
    for (double& input : inputs) {
      const double at = input, step = 1e-4;
      const auto loss = [&](double steps) {
        input = at + steps * step;
        const Values is = y();
        double sum = 0;
        for (size_t i = 0; i < is.size(); ++i)
          sum += double(c.dy[i]) * (is[i] + (c.residual ? x[i] : 0));
        return sum;
      };
      result.push_back((8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * step));
      input = at;
    }
    return result;
  }
  void compare_with(const std::string& what, const char* is, const Values& must,
                    const Values& held = {}) const {
    compare({.what = what,
             .is = seen.list(is),
             .must = must,
             .row = C,
             .tolerance = 3e-5,
             .before = held,
             .factors = {{"C, the number of columns", double(C)},
                         {"sqrt(C)", std::sqrt(double(C))},
                         {"the number of rows", double(c.rows())}}});
  }
};

void check_value(const RmsNormEvidence& e) {
  if (e.seen.list("y shape") != Values(e.c.shape.begin(), e.c.shape.end()))
    fail("y does not have the shape of x, " + to_string(e.c.shape));
  e.compare_with("y", "y", e.y());
}

void check_recorded(const RmsNormEvidence& e) {
  if (e.number("recorded") != 1)
    fail("nothing was recorded, so backward cannot reach x or weight",
         "Take the tape of x, or that of weight if x has none; record if either needs a gradient.");
  if (const std::string error = e.seen.text("backward"); !error.empty())
    fail("the backward function breaks a contract of the tape", error);
}

void check_gradient_of_weight(RmsNormEvidence e) {
  check_recorded(e);
  Values must = e.before;
  if (!e.c.weight_needs)
    return e.compare_with("the gradient of the frozen weight", "dweight", must);
  for (size_t i = 0; const double added : e.differences(e.weight)) must[i++] += added;
  e.compare_with("the gradient of weight", "dweight", must, e.before);
}

void check_gradient_of_x(RmsNormEvidence e) {
  check_recorded(e);
  const Values of_residual(e.c.dy.begin(), e.c.dy.end());
  e.compare_with("the gradient of x", "dx", e.differences(e.x),
                 e.c.residual ? of_residual : Values());
}

void check_gradients(const RmsNormEvidence& e) {
  check_gradient_of_weight(e);
  check_gradient_of_x(e);
}

}  // namespace

TEST_CASE("value of one row", "[01][value][10 points]") { check_value({}); }
TEST_CASE("value of several rows", "[01][value][15 points]") { check_value({}); }

TEST_CASE("shapes that do not fit", "[01][shapes][5 points]") {
  const RmsNormEvidence e;
  if (e.number("accepted") != 0)
    fail("a weight that does not fit x is accepted",
         str("x is ", to_string(e.c.shape), ", weight (", e.C, ", 1) or (", e.C - 1,
             "); rms_norm must throw std::invalid_argument, as require() does"));
}

TEST_CASE("gradient of weight", "[01][gradients][15 points]") { check_gradient_of_weight({}); }
TEST_CASE("gradient of x", "[01][gradients][15 points]") { check_gradient_of_x({}); }
TEST_CASE("weight used twice", "[01][contributions][5 points]") { check_gradients({}); }
TEST_CASE("x used twice", "[01][contributions][5 points]") { check_gradient_of_x({}); }
TEST_CASE("frozen weight", "[01][inputs][5 points]") { check_gradients({}); }
TEST_CASE("constant x", "[01][inputs][4 points]") { check_gradient_of_weight({}); }

TEST_CASE("no input needs a gradient", "[01][inputs][3 points]") {
  const RmsNormEvidence e;
  if (e.number("entries") != 0)
    fail("an entry was recorded although neither x nor weight needs a gradient",
         "Frozen layers would keep activations for a backward function that has nothing to do. "
         "Return Var::constant(tape, y).");
  check_value(e);
}

TEST_CASE("no tape", "[01][inputs][3 points]") {
  const RmsNormEvidence e;
  const double bytes = double(e.x.size() * sizeof(float)), kept = e.number("kept");
  if (e.number("has a tape") != 0)
    fail("without a tape the result must be a constant without a tape");
  if (kept != bytes)
    fail("without a tape nothing but y may be left",
         str(kept, " B of activations are live after the call; y has ", bytes, " B"));
  check_value(e);
}

TEST_CASE("bytes kept for backward", "[01][memory][10 points]") {
  const RmsNormEvidence e;
  check_recorded(e);
  const double statistics = double(e.c.rows() * 4), full = statistics * double(e.C),
               kept = e.number("kept"), heap = e.number("heap");
  const std::pair<bool, const char*> mistakes[] = {
      {heap > 2048,
       "the backward function keeps values outside the ledger, in a std::vector or the like: keep "
       "tensors"},
      {e.number("keeps y") == 1,
       "the backward function keeps y: it needs x and 1/rms of each row only"},
      {e.number("keeps x") != 1,
       "the backward function does not keep x, which is there anyway for the op before, but "
       "another tensor: that costs its bytes twice"},
      {kept >= full, "another tensor of the size of x is kept: x and 1/rms of each row are enough"},
      {kept != statistics, "the bytes that are kept are not those of x and 1/rms of each row"}};
  for (const auto& [made, meaning] : mistakes)
    if (made)
      fail(meaning, str("The op keeps ", kept, " B of activations beside x, and ", heap,
                        " B outside the ledger. 1/rms of ", e.c.rows(), " rows is ", statistics,
                        " B, a tensor like x ", full, " B."));
}

TEST_CASE("weight resharded before backward", "[01][memory][5 points]") {
  const RmsNormEvidence e;
  check_recorded(e);
  if (e.number("kept of weight") != 0)
    fail(
        "the backward function keeps the memory of weight, so ZeRO-3 cannot free it after the "
        "forward pass: capture the Var, and call value() in backward",
        str(e.number("kept of weight"), " B of parameters are live after weight was resharded"));
  check_gradients(e);
}

}  // namespace zl::exercises
