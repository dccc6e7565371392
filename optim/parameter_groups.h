// Groups of parameters that an optimizer treats alike, and how names select them.
#pragma once

#include <cstdint>
#include <string_view>

namespace zl {

// Elements [begin, end) of a flat range with the same settings, as a parameter group of torch.
struct ParameterGroup {
  int64_t begin, end;  // [n]
  double weight_decay;
  bool frozen = false;  // never updated; the state is allocated all the same
};

// Whether `name` matches `glob`: * any text, ? one character.
bool matches_glob(std::string_view glob, std::string_view name);

}  // namespace zl
