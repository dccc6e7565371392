// Reading and setting a model's full parameters while a stage holds them in parts.
#pragma once

#include <functional>
#include <vector>

#include "stages/stage.h"

namespace zl {

// Replaces every parameter by `values(parameter)`, each in full; every rank takes its part. Throws
// std::invalid_argument if the number of values is wrong.
void load_weights(Stage& stage, const std::function<std::vector<float>(const Parameter&)>& values);

// Calls `visit` with each full parameter in full precision, the master weights where there are any,
// unit by unit, and gathers where needed. Every rank must call it, between steps. The tensor is
// valid during the call only.
using VisitParameter = std::function<void(const Parameter&, const Tensor& full)>;
void visit_weights(Stage& stage, const VisitParameter& visit);

}  // namespace zl
