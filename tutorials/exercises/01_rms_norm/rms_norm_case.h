// What each check of exercise 01 computes with, and how it calls the op: it follows from the seed.
#pragma once

#include <string>
#include <vector>

#include "tensor/shape.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::rms_norm_checks {

struct Case {
  Shape shape;  // of x; odd C
  double eps = 0;
  std::vector<float> x, weight;
  std::vector<float> dy;      // the gradient that backward starts from
  std::vector<float> before;  // what the gradient of weight holds before backward

  bool x_needs = true, weight_needs = true;      // a gradient
  bool tape_of_x = true, tape_of_weight = true;  // whether they have the tape
  bool twice = false;                            // the op again, with the same weight
  bool residual = false;                         // x is added to the result
  bool resharded = false;  // the weight is freed after forward, and is elsewhere in backward
  bool backward = true;    // false: backward may not be written yet

  int64_t C() const { return shape.back(); }
  int64_t rows() const { return numel(shape) / C(); }
};

// The mean of a row is not 0, so that a layer norm computes something else. Rows differ in size: in
// some of them eps matters.
inline Case make_case(const CheckOptions& options) {
  Case c;
  const auto is = [&](const char* name) { return options.is(name); };
  const bool constants = is("no input needs a gradient");
  c.x_needs = !is("constant x") && !is("no tape") && !constants;
  c.weight_needs = !is("frozen weight") && !constants;
  c.tape_of_x = c.x_needs || constants;
  c.tape_of_weight = !is("no tape");
  c.twice = is("weight used twice");
  c.residual = is("x used twice");
  c.resharded = is("weight resharded before backward");
  c.backward = !options.check.starts_with("value of") && c.tape_of_weight && !constants;

  Draw draw(options);
  const int64_t C = 2 * draw.between(2, 5) + 1, rows = draw.between(2, 4);
  c.shape = is("value of one row")          ? Shape{1, C}
            : is("bytes kept for backward") ? Shape{17, 50 + rows, C}
                                            : Shape{2, rows, C};
  c.eps = 0.01 * double(draw.between(1, 4));
  const auto fill = [&](std::vector<float>& values, int64_t n, double mean, double size = 1) {
    for (; n > 0; --n) values.push_back(float(size * (mean + draw.normal())));
  };
  fill(c.weight, C, 1);
  for (int64_t row = 0; row < c.rows(); ++row)
    fill(c.x, C, 0.5, row % 3 == 0 ? 1 : row % 3 == 1 ? 0.2 : 8);
  fill(c.dy, numel(c.shape), 0.25);
  fill(c.before, C, 0);
  return c;
}

}  // namespace zl::exercises::rms_norm_checks
