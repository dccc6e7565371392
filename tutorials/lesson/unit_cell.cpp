#include "tutorials/lesson/unit_cell.h"

#include <algorithm>

namespace zl::lesson {
namespace {

int64_t elements(const Tensor& t) { return t.defined() ? t.numel() : 0; }

}  // namespace

UnitCell look_at(const Unit& unit, const Stage& stage) {
  const UnitMemory& m = stage.unit_memory(unit);
  const auto letter = [&](char whole, char shard, int64_t n) {
    return n == 0 ? '.' : n == m.layout.full() ? whole : shard;
  };
  return {.name = unit.name,
          .parameter = letter('P', 'p', std::max(elements(m.parameter), elements(m.gathered))),
          .gradient = letter('G', 'g', std::max(elements(m.gradient), elements(m.unreduced))),
          .optimizer = letter('O', 'o', m.optimizer ? m.optimizer->numel() : 0)};
}

}  // namespace zl::lesson
