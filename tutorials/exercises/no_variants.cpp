// In a student's tree this file replaces the variants of stages 1 to 3, which would show how these
// stages are written.
#include "stages/stage.h"

namespace zl {

#define ZL_LEFT_OUT(NAME)                                                                   \
  std::unique_ptr<Stage> make_##NAME(std::vector<Unit>&, Communicator&, Memory&,            \
                                     const StageOptions&) {                                 \
    throw std::invalid_argument("this tree is for exercises and has no " #NAME              \
                                ": its file would show the solution of an exercise; try a " \
                                "stage of ddp, zero1, zero2 and zero3");                    \
  }
ZL_LEFT_OUT(hsdp)
ZL_LEFT_OUT(zero3_hpz)
ZL_LEFT_OUT(zero3_qwz)
ZL_LEFT_OUT(zero3_qgz)

}  // namespace zl
