// What each check of exercise 01 computes with: sizes and values follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::rms_norm_checks {

inline constexpr char kOneRow[] = "value of one row", kRows[] = "value of several rows",
                      kShapes[] = "shapes that do not fit", kWeight[] = "gradient of weight",
                      kX[] = "gradient of x", kF32[] = "value and gradients in f32",
                      kTwice[] = "weight used twice", kResidual[] = "x used twice",
                      kFrozen[] = "frozen weight", kConstant[] = "constant x",
                      kConstants[] = "no input needs a gradient", kNoTape[] = "no tape",
                      kKept[] = "bytes kept for backward",
                      kResharded[] = "weight resharded before backward";

// The values are rounded to `dtype`.
struct Case {
  Shape shape;  // of x; odd C
  Dtype dtype = Dtype::f64;
  double eps = 0;
  std::vector<double> x, weight;
  std::vector<double> dy;      // the gradient that backward starts from
  std::vector<double> before;  // what the gradient of weight holds before backward

  int64_t C() const { return shape.back(); }
  int64_t rows() const { return numel(shape) / C(); }
};

Case make_case(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises::rms_norm_checks
