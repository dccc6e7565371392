#include "tutorials/exercises/stages/judge_stage.h"

namespace zl::exercises {

Exercise exercise_07() { return stage_exercise(StageKind::zero3); }

}  // namespace zl::exercises
