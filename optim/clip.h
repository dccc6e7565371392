// Clipping by the global norm, with torch's epsilon: Pascanu et al. 2013 (arXiv:1211.5063), alg. 1.
#pragma once

#include <algorithm>

namespace zl {

// The factor for gradients of norm `norm`: min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0.
inline double clip_factor(double norm, double max_norm) {
  return max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace zl
