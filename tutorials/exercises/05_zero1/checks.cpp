#include "tutorials/exercises/stages/judge_stage.h"

namespace zl::exercises {

Exercise exercise_05() { return stage_exercise(StageKind::zero1); }

}  // namespace zl::exercises
