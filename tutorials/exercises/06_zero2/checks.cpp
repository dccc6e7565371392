#include "tutorials/exercises/stages/judge_stage.h"

namespace zl::exercises {

Exercise exercise_06() { return stage_exercise(StageKind::zero2); }

}  // namespace zl::exercises
