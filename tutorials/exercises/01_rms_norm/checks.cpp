// The checks of exercise 01. Gradients are expected by central differences: no formula of the
// solution is here.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>

#include "tensor/error.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace rms_norm_checks;
using Values = std::vector<double>;
using Program = std::function<Values(const Values& x, const Values& weight)>;

Values rms_norm_values(const Case& c, const Values& x, const Values& weight) {
  const size_t C = size_t(c.C());
  Values y;
  for (size_t begin = 0; begin < x.size(); begin += C) {
    double squares = 0;
    for (size_t k = begin; k < begin + C; ++k) squares += x[k] * x[k];
    for (size_t k = 0; k < C; ++k)
      y.push_back(x[begin + k] / std::sqrt(squares / double(C) + c.eps) * weight[k]);
  }
  return y;
}

struct Gradients {
  Values x, weight;
};

// Of sum(dy * y(x, weight)), by central differences of fourth order.
Gradients differences(const Case& c, const Program& y) {
  Gradients at{c.x, c.weight}, result;
  const auto loss = [&] {
    const Values values = y(at.x, at.weight);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += c.dy[i] * values[i];
    return sum;
  };
  const auto derivative = [&](double& of) {
    const double before = of, step = 1e-4;
    const auto beside = [&](double steps) {
      of = before + steps * step;
      const double value = loss();
      of = before;
      return value;
    };
    return (8 * (beside(1) - beside(-1)) - (beside(2) - beside(-2))) / (12 * step);
  };
  for (double& x : at.x) result.x.push_back(derivative(x));
  for (double& w : at.weight) result.weight.push_back(derivative(w));
  return result;
}

Values plus(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void compare_with(const Case& c, const std::string& what, const Values& is, const Values& must,
                  const Values& before = {}) {
  compare({.what = what,
           .is = is,
           .must = must,
           .row = size_t(c.C()),
           .tolerance = c.dtype == Dtype::f32 ? 3e-5 : 1e-7,  // f64: of the differences
           .before = before,
           .factors = {{"C, the number of columns", double(c.C())},
                       {"sqrt(C)", std::sqrt(double(c.C()))},
                       {"the number of rows", double(c.rows())}}});
}

void check_value(const Record& seen, const Case& c) {
  if (seen.list("y shape") != Values(c.shape.begin(), c.shape.end()))
    fail("y does not have the shape of x, " + to_string(c.shape));
  if (seen.number("y is f64") != double(c.dtype == Dtype::f64))
    fail(str("y does not have the type of x, ", name(c.dtype)));
  compare_with(c, "y", seen.list("y"), rms_norm_values(c, c.x, c.weight));
}

void check_recorded(const Record& seen) {
  if (seen.number("recorded") != 1)
    fail("nothing was recorded, so backward cannot reach x or weight",
         "Take the tape of x, or that of weight if x has none; record if either needs a gradient.");
  if (seen.texts.contains("backward"))
    fail("the backward function breaks a contract of the tape", seen.texts.at("backward"));
}

enum class Of { weight, x, both };

// `dx_before`: what another op has added to the gradient of x.
void check_gradients(const Record& seen, const Case& c, Of of, const Program& y = {},
                     const Values& dx_before = {}) {
  check_recorded(seen);
  const Gradients right = differences(
      c, y ? y
           : [&c](const Values& x, const Values& weight) { return rms_norm_values(c, x, weight); });
  const auto seen_list = [&](const char* name) {
    const auto found = seen.numbers.find(name);
    return found == seen.numbers.end() ? Values() : found->second;
  };
  if (of != Of::x)
    compare_with(c, "the gradient of weight", seen_list("dweight"), plus(c.before, right.weight),
                 c.before);
  if (of != Of::weight) compare_with(c, "the gradient of x", seen_list("dx"), right.x, dx_before);
}

Case this_case() { return make_case(check_name(), options()); }

}  // namespace

TEST_CASE("value of one row", "[01][value][10 points]") { check_value(observe(), this_case()); }

TEST_CASE("value of several rows", "[01][value][10 points]") {
  check_value(observe(), this_case());
}

TEST_CASE("shapes that do not fit", "[01][shapes][5 points]") {
  const Record seen = observe();
  const Case c = this_case();
  const Shape shapes[] = {{c.C(), 1}, {c.C() - 1}};
  for (size_t i = 0; i < 2; ++i)
    if (seen.list("refused").at(i) != 1)
      fail("a weight that does not fit x is accepted",
           str("x is ", to_string(c.shape), ", weight ", to_string(shapes[i]),
               "; rms_norm must throw std::invalid_argument, as require() does"));
}

TEST_CASE("gradient of weight", "[01][gradients][10 points]") {
  check_gradients(observe(), this_case(), Of::weight);
}

TEST_CASE("gradient of x", "[01][gradients][10 points]") {
  check_gradients(observe(), this_case(), Of::x);
}

TEST_CASE("value and gradients in f32", "[01][gradients][5 points]") {
  const Record seen = observe();
  check_value(seen, this_case());
  check_gradients(seen, this_case(), Of::both);
}

TEST_CASE("weight used twice", "[01][contributions][10 points]") {
  const Record seen = observe();
  const Case c = this_case();
  check_gradients(seen, c, Of::both, [&](const Values& x, const Values& weight) {
    return rms_norm_values(c, rms_norm_values(c, x, weight), weight);
  });
}

TEST_CASE("x used twice", "[01][contributions][10 points]") {
  const Record seen = observe();
  const Case c = this_case();
  const Program residual = [&](const Values& x, const Values& weight) {
    return plus(rms_norm_values(c, x, weight), x);
  };
  check_gradients(seen, c, Of::x, residual, c.dy);
}

TEST_CASE("frozen weight", "[01][inputs][5 points]") {
  const Record seen = observe();
  const Case c = this_case();
  check_gradients(seen, c, Of::x);
  compare_with(c, "the gradient of the frozen weight", seen.list("dweight"), c.before);
}

TEST_CASE("constant x", "[01][inputs][4 points]") {
  check_gradients(observe(), this_case(), Of::weight);
}

TEST_CASE("no input needs a gradient", "[01][inputs][3 points]") {
  const Record seen = observe();
  if (seen.number("entries") != 0)
    fail("an entry was recorded although neither x nor weight needs a gradient",
         "Frozen layers would keep activations for a backward function that has nothing to do. "
         "Return Var::constant(tape, y).");
  check_value(seen, this_case());
}

TEST_CASE("no tape", "[01][inputs][3 points]") {
  const Record seen = observe();
  const Case c = this_case();
  const double bytes = double(numel(c.shape) * size_of(c.dtype)), kept = seen.number("kept");
  if (seen.number("has a tape") != 0)
    fail("without a tape the result must be a constant without a tape");
  if (kept != bytes)
    fail("without a tape nothing but y may be left",
         str(kept, " B of activations are live after the call; y has ", bytes, " B"));
  check_value(seen, c);
}

TEST_CASE("bytes kept for backward", "[01][memory][10 points]") {
  const Record seen = observe();
  check_recorded(seen);
  const Case c = this_case();
  const double statistics = double(c.rows() * size_of(c.dtype)), full = statistics * double(c.C()),
               kept = seen.number("kept"), heap = seen.number("heap");
  const std::string sizes = str("The op keeps ", kept, " B of activations beside x, and ", heap,
                                " B outside the ledger. ", "1/rms of ", c.rows(), " rows is ",
                                statistics, " B, a tensor like x ", full, " B.");
  if (heap > 2048)
    fail(
        "the backward function keeps values outside the ledger, in a std::vector or the like: "
        "keep tensors",
        sizes);
  if (seen.number("keeps y") == 1)
    fail("the backward function keeps y: it needs x and 1/rms of each row only", sizes);
  if (seen.number("keeps x") != 1)
    fail(
        "the backward function does not keep x, which is there anyway for the op before, but "
        "another tensor: that costs its bytes twice",
        sizes);
  if (kept == 0) fail("1/rms is not kept: backward has to compute it again", sizes);
  if (kept >= full)
    fail("another tensor of the size of x is kept: x and 1/rms of each row are enough", sizes);
  if (kept != statistics)
    fail("the bytes that are kept are not those of x and 1/rms of each row", sizes);
}

TEST_CASE("weight resharded before backward", "[01][memory][5 points]") {
  const Record seen = observe();
  if (seen.number("kept of weight") != 0)
    fail(
        "the backward function keeps the memory of weight, so ZeRO-3 cannot free it after the "
        "forward pass: capture the Var, and call value() in backward",
        str(seen.number("kept of weight"), " B of parameters are live after weight was resharded"));
  check_gradients(seen, this_case(), Of::both);
}

}  // namespace zl::exercises
