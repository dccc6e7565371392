// Which parameters a stage gathers, reduces and frees together: the model's units, or others that
// real systems make of them (stages/variants/).
#pragma once

#include <functional>
#include <vector>

#include "nn/unit.h"

namespace zl {

struct Grouping {
  std::vector<Unit> units;  // units[i].index is i; each parameter is in one
  // By unit of the model: the units that a pass of it may use, ascending. Root uses unit 0 too, so
  // that unit 0 is used during the whole pass.
  std::vector<std::vector<int>> used_by;
};
using MakeGrouping = std::function<Grouping(const std::vector<Unit>& of_model)>;

Grouping group_by_unit(const std::vector<Unit>& of_model);

// One unit "all". Its parameters are in the order in which torch's modules register them: root's
// matrices (embeddings), the blocks, root's vectors (the last norm).
Grouping group_all(const std::vector<Unit>& of_model);

// Parameters of at most `persistence_threshold` elements are units by themselves. The others
// are one unit if they are at most `prefetch` elements, otherwise one per unit of the model; these
// come first.
Grouping group_persistent_apart(const std::vector<Unit>& of_model, int64_t persistence_threshold,
                                int64_t prefetch);

// Whether `unit` of that grouping is one small parameter.
bool is_persistent(const Unit& unit, int64_t persistence_threshold);

}  // namespace zl
