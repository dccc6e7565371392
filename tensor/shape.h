// Shapes of contiguous tensors, in elements.
//
// Letters used throughout: B micro-batch size, T tokens in a sequence, C channels (width), V
// vocabulary, H heads, D = C / H channels of a head, N ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zl {

using Shape = std::vector<int64_t>;

inline int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// "(2, 3)", for people.
inline std::string to_string(const Shape& shape) {
  std::string s = "(";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + ")";
}

// The smallest multiple of `multiple` that is at least n. n >= 0, multiple > 0.
constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace zl
