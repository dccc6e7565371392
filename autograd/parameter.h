// A named leaf that is trained.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace zl {

// Whoever trains decides where `data` and `grad` live and when they exist. Tapes capture a
// parameter by its address and look `data` up at each use, so one that was released after the
// forward pass is seen again once it is gathered.
struct Parameter {
  std::string name;
  Shape shape;
  double initial_mean = 0,
         initial_deviation = 0;  // initial values: normal, or constant where the deviation is 0
  Tensor data{};                 // undefined while released
  Tensor grad{};                 // undefined while there is no gradient buffer; ops add into it
  // false: frozen. Ops treat it as a constant, and stages keep its memory as if it were trained but
  // never update it.
  bool requires_grad = true;
  // Whether it may be used now: a parameter that belongs to a unit is open only while the unit
  // runs.
  bool open = true;

  int64_t numel() const { return zl::numel(shape); }
};

}  // namespace zl
