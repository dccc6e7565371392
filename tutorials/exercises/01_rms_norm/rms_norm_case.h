// What each check of exercise 01 computes with: it follows from the seed.
#pragma once

#include "tensor/shape.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::rms_norm_checks {

// Values are floats, so that both programs compute with the same ones. `before` tells an op that
// adds to a gradient from one that sets it.
struct Case {
  Shape shape;  // of x; odd C
  double eps = 0;
  Values x, weight;
  Values dy;              // the gradient that backward starts from
  Values before;          // what the gradient of weight holds before backward
  bool twice = false;     // the op again, with the same weight
  bool residual = false;  // x is added to the result
};

// The mean of a row is not 0, so that a layer norm computes something else. Rows differ in size: in
// some of them eps matters.
inline Case make_case(const CheckOptions& options) {
  Draw draw(options);
  const int64_t C = 2 * draw.between(2, 5) + 1, rows = draw.between(2, 4);
  Case c{.shape = options.is("value of one row")          ? Shape{1, C}
                  : options.is("bytes kept for backward") ? Shape{17, 50 + rows, C}
                                                          : Shape{2, rows, C},
         .eps = 0.01 * double(draw.between(1, 4)),
         .twice = options.is("weight used twice"),
         .residual = options.is("x used twice")};
  const auto fill = [&](Values& values, int64_t n, double mean, double size = 1) {
    for (; n > 0; --n) values.push_back(double(float(size * (mean + draw.normal()))));
  };
  fill(c.weight, C, 1);
  for (int64_t row = 0; row < numel(c.shape) / C; ++row)
    fill(c.x, C, 0.5, row % 3 == 0 ? 1 : row % 3 == 1 ? 0.2 : 8);
  fill(c.dy, numel(c.shape), 0.25);
  fill(c.before, C, 0);
  return c;
}

}  // namespace zl::exercises::rms_norm_checks
