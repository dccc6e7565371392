// The checks of exercise 01. Gradients are expected by central differences: no formula of the
// solution is here.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using rms_norm_checks::Case;
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

Values plus(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The gradient of sum(dy * y) by `inputs`, which are c.x or c.weight, by central differences of
// fourth order.
Values differences(Case c, Values Case::*inputs) {
  Values result;
  for (double& input : c.*inputs) {
    const double at = input, step = 1e-4;
    const auto loss = [&](double steps) {
      input = at + steps * step;
      Values y = rms_norm_values(c, c.x, c.weight);
      if (c.twice) y = rms_norm_values(c, y, c.weight);
      if (c.residual) y = plus(y, c.x);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += c.dy[i] * y[i];
      return sum;
    };
    result.push_back((8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * step));
    input = at;
  }
  return result;
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

struct RmsNormEvidence {
  Record seen = observe();
  Case c = rms_norm_checks::make_case(check_name(), options());
  double number(const char* name) const { return seen.number(name); }
};

void check_value(const RmsNormEvidence& e) {
  const Case& c = e.c;
  if (e.seen.list("y shape") != Values(c.shape.begin(), c.shape.end()))
    fail("y does not have the shape of x, " + to_string(c.shape));
  if (e.number("y is f64") != double(c.dtype == Dtype::f64))
    fail(str("y does not have the type of x, ", name(c.dtype)));
  compare_with(c, "y", e.seen.list("y"), rms_norm_values(c, c.x, c.weight));
}

void check_recorded(const RmsNormEvidence& e) {
  if (e.number("recorded") != 1)
    fail("nothing was recorded, so backward cannot reach x or weight",
         "Take the tape of x, or that of weight if x has none; record if either needs a gradient.");
  if (e.seen.texts.contains("backward"))
    fail("the backward function breaks a contract of the tape", e.seen.texts.at("backward"));
}

void check_gradient_of_weight(const RmsNormEvidence& e) {
  check_recorded(e);
  const Values& before = e.c.before;
  if (!e.c.weight_needs)
    compare_with(e.c, "the gradient of the frozen weight", e.seen.list("dweight"), before);
  else
    compare_with(e.c, "the gradient of weight", e.seen.list("dweight"),
                 plus(before, differences(e.c, &Case::weight)), before);
}

void check_gradient_of_x(const RmsNormEvidence& e) {
  check_recorded(e);
  compare_with(e.c, "the gradient of x", e.seen.list("dx"), differences(e.c, &Case::x),
               e.c.residual ? e.c.dy : Values());
}

void check_gradients(const RmsNormEvidence& e) {
  check_gradient_of_weight(e);
  check_gradient_of_x(e);
}

}  // namespace

TEST_CASE("value of one row", "[01][value][10 points]") { check_value({}); }
TEST_CASE("value of several rows", "[01][value][10 points]") { check_value({}); }

TEST_CASE("shapes that do not fit", "[01][shapes][5 points]") {
  const RmsNormEvidence e;
  const int64_t C = e.c.C();
  for (size_t i = 0; const Shape& shape : {Shape{C, 1}, Shape{C - 1}})
    if (e.seen.list("refused").at(i++) != 1)
      fail("a weight that does not fit x is accepted",
           str("x is ", to_string(e.c.shape), ", weight ", to_string(shape),
               "; rms_norm must throw std::invalid_argument, as require() does"));
}

TEST_CASE("gradient of weight", "[01][gradients][10 points]") { check_gradient_of_weight({}); }
TEST_CASE("gradient of x", "[01][gradients][10 points]") { check_gradient_of_x({}); }
TEST_CASE("value and gradients in f32", "[01][gradients][5 points]") {
  const RmsNormEvidence e;
  check_value(e);
  check_gradients(e);
}
TEST_CASE("weight used twice", "[01][contributions][10 points]") { check_gradients({}); }
TEST_CASE("x used twice", "[01][contributions][10 points]") { check_gradient_of_x({}); }
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
  const double bytes = double(numel(e.c.shape) * size_of(e.c.dtype)), kept = e.number("kept");
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
  const double statistics = double(e.c.rows() * size_of(e.c.dtype)),
               full = statistics * double(e.c.C()), kept = e.number("kept"),
               heap = e.number("heap");
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
  if (e.number("kept of weight") != 0)
    fail(
        "the backward function keeps the memory of weight, so ZeRO-3 cannot free it after the "
        "forward pass: capture the Var, and call value() in backward",
        str(e.number("kept of weight"), " B of parameters are live after weight was resharded"));
  check_gradients(e);
}

}  // namespace zl::exercises
