// Units of a model that nothing runs: one parameter each, of the given numbers of elements.
#pragma once

#include <vector>

#include "nn/unit.h"
#include "tensor/error.h"

namespace zl::exercises {

struct FlatUnits {
  explicit FlatUnits(const std::vector<int64_t>& sizes) : parameters(sizes.size()) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      parameters[i] = {.name = str("p", i), .shape = {sizes[i]}};
      list.push_back({.name = str("unit ", i), .parameters = {&parameters[i]}, .index = int(i)});
    }
  }
  FlatUnits(const FlatUnits&) = delete;

  std::vector<Parameter> parameters;
  std::vector<Unit> list;
};

}  // namespace zl::exercises
