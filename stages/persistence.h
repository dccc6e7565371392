// Which parameters DeepSpeed's stage 3 keeps in full (parameter_offload.py,
// mark_persistent_parameters): those of at most stage3_param_persistence_threshold elements.
#pragma once

#include <cstdint>

namespace zl {

inline bool is_persistent(int64_t elements, int64_t persistence_threshold) {
  return elements <= persistence_threshold;
}

}  // namespace zl
