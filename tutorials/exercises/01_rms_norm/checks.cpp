// The checks of exercise 01. Gradients are expected by central differences: no formula of the
// solution is here.

#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

struct RmsNorm : rms_norm_checks::Case {
  RmsNorm() : Case(rms_norm_checks::make_case(options())) {}
  Record seen = observe();
  size_t C = weight.size();
  double rows = double(x.size() / C);

  Values y_of(const Values& x) const {
    Values all;
    for (size_t begin = 0; begin < x.size(); begin += C) {
      double squares = 0;
      for (size_t k = begin; k < begin + C; ++k) squares += x[k] * x[k];
      for (size_t k = 0; k < C; ++k)
        all.push_back(x[begin + k] / std::sqrt(squares / double(C) + eps) * weight[k]);
    }
    return all;
  }
  double loss() const {
    const Values y = twice ? y_of(y_of(x)) : y_of(x);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * (y[i] + (residual ? x[i] : 0));
    return sum;
  }
  // The gradient of loss() by `inputs`, which are x or weight, is added to `to`.
  Values plus_gradient(Values to, Values& inputs) const {
    for (size_t i = 0; i < inputs.size(); ++i)
      for (const double step : {1e-5, -1e-5}) {
        const double at = std::exchange(inputs[i], inputs[i] + step);
        to[i] += loss() / (2 * step);
        inputs[i] = at;
      }
    return to;
  }
  void compare_with(const std::string& what, const char* is, const Values& must,
                    const Values& before = {}) const {
    compare({.what = what,
             .is = seen.list(is),
             .must = must,
             .row = C,
             .tolerance = 3e-5,
             .before = before,
             .factors = {{"C, the number of columns", double(C)},
                         {"sqrt(C)", std::sqrt(double(C))},
                         {"the number of rows", rows}}});
  }
  void check_recorded() const {
    if (seen.number("recorded") != 1)
      fail("nothing was recorded, so backward cannot reach x or weight",
           "Take the tape of x, or that of weight if x has none; record if either needs a "
           "gradient.");
  }
  void check_value() const {
    if (seen.list("y shape") != Values(shape.begin(), shape.end()))
      fail("y does not have the shape of x, " + to_string(shape));
    compare_with("y", "y", y_of(x));
  }
  void check_gradient_of_weight() {
    check_recorded();
    const bool frozen = options().is("frozen weight");
    compare_with("the gradient of weight", "dweight",
                 frozen ? before : plus_gradient(before, weight), before);
  }
  void check_gradient_of_x() {
    check_recorded();
    compare_with("the gradient of x", "dx", plus_gradient(Values(x.size()), x),
                 residual ? dy : Values());
  }
  void check_gradients() { check_gradient_of_weight(), check_gradient_of_x(); }

  void check_constant() const {
    if (seen.number("entries") != 0)
      fail("an entry was recorded although neither x nor weight needs a gradient",
           "Frozen layers would keep activations for a backward function that has nothing to do. "
           "Return Var::constant(tape, y).");
    const double kept = seen.number("kept"), bytes = 4 * rows * double(C);
    if (kept != bytes)
      fail("nothing but y may be left if no gradient is needed",
           str(kept, " B of activations are live after the call; y has ", bytes, " B"));
    check_value();
  }
};

}  // namespace

TEST_CASE("value of one row", "[01][value][10 points]") { RmsNorm().check_value(); }
TEST_CASE("value of several rows", "[01][value][15 points]") { RmsNorm().check_value(); }

TEST_CASE("shapes that do not fit", "[01][shapes][5 points]") {
  const RmsNorm e;
  if (e.seen.number("accepted") != 0)
    fail("a weight that does not fit x is accepted",
         str("x is ", to_string(e.shape), ", weight (", e.C, ", 1) or (", e.C - 1,
             "); rms_norm must throw std::invalid_argument, as require() does"));
}

TEST_CASE("gradient of weight", "[01][gradients][15 points]") {
  RmsNorm().check_gradient_of_weight();
}
TEST_CASE("gradient of x", "[01][gradients][15 points]") { RmsNorm().check_gradient_of_x(); }
TEST_CASE("weight used twice", "[01][contributions][5 points]") { RmsNorm().check_gradients(); }
TEST_CASE("x used twice", "[01][contributions][5 points]") { RmsNorm().check_gradient_of_x(); }
TEST_CASE("frozen weight", "[01][inputs][5 points]") { RmsNorm().check_gradients(); }
TEST_CASE("constant x", "[01][inputs][4 points]") { RmsNorm().check_gradient_of_weight(); }
TEST_CASE("no input needs a gradient", "[01][inputs][3 points]") { RmsNorm().check_constant(); }
TEST_CASE("no tape", "[01][inputs][3 points]") { RmsNorm().check_constant(); }

TEST_CASE("bytes kept for backward", "[01][memory][10 points]") {
  const RmsNorm e;
  const double statistics = 4 * e.rows, full = statistics * double(e.C),
               kept = e.seen.number("kept") - full, heap = e.seen.number("heap");
  if (heap <= 2048 && kept == statistics && e.seen.number("keeps y") == 0) return;
  fail(heap > 2048 ? "the backward function keeps values outside the ledger, in a std::vector or "
                     "the like: keep tensors"
       : e.seen.number("keeps y") == 1
           ? "the backward function keeps y: it needs x and 1/rms of each row only"
       : kept >= full
           ? "another tensor of the size of x is kept: x and 1/rms of each row are enough"
           : "the bytes that are kept are not those of x and 1/rms of each row",
       str("The op keeps ", kept, " B of activations beside x and y, and ", heap,
           " B outside the ledger. 1/rms of ", e.rows, " rows is ", statistics,
           " B, a tensor like x ", full, " B."));
}

TEST_CASE("weight resharded before backward", "[01][memory][5 points]") {
  RmsNorm e;
  e.check_recorded();
  if (const double kept = e.seen.number("kept of weight"); kept != 0)
    fail(
        "the backward function keeps the memory of weight, so ZeRO-3 cannot free it after the "
        "forward pass: capture the Var, and call value() in backward",
        str(kept, " B of parameters are live after weight was resharded"));
  e.check_gradients();
}

}  // namespace zl::exercises
