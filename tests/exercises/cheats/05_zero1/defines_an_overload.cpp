// diagnosis: it does not define zl::make_zero1(…)
// check: refused
// The linker would take the function of the library that has the parameters of the task.
#include "stages/stage.h"

namespace zl {

std::unique_ptr<Stage> make_zero1(int) { return nullptr; }

}  // namespace zl
