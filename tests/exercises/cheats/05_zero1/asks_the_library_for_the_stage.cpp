// diagnosis: it uses zl::make_stage
// check: refused
// Asks the library for the stage by its name.
#include "stages/stage.h"

namespace zl {
std::unique_ptr<Stage> make_zero1(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options) {
  return make_stage(StageKind::zero1, units, comm, memory, options);
}

}  // namespace zl
