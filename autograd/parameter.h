// A named tensor that training updates.
#pragma once

#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace zl {

// The stage decides when `data` and `grad` exist and in which memory. Tapes capture a parameter by
// its address and read `data` at each use. So a parameter that is freed after the forward pass can
// be allocated again before backward uses it.
struct Parameter {
  std::string name;
  Shape shape;
  // Initial values are normal with this mean and standard deviation; 0 makes them constant.
  double initial_mean = 0, initial_deviation = 0;
  Tensor data{};  // undefined while the unit is sharded
  Tensor grad{};  // ops add to it; undefined while there is no gradient buffer
  // false: frozen. Ops treat it as a constant; stages allocate its memory but never update it.
  bool requires_grad = true;
  // Whether ops may use it now: a parameter of a unit only while the unit runs.
  bool usable = true;
  // Called before each addition to `grad`, if it is set.
  std::function<void()> before_addition{};

  int64_t numel() const { return zl::numel(shape); }
};

}  // namespace zl
