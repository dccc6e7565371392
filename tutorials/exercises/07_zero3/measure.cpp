#include "tutorials/exercises/stages/measure_stage.h"

namespace zl::exercises {

// stage_zero3() is the student's: the library's is not linked, because theirs comes first.
Record measure(const std::string& check, const CheckOptions& options) {
  return measure_stage(StageKind::zero3, check, options);
}

}  // namespace zl::exercises
