// Any rank of any size: moves nothing, checks and logs everything. The dry run's transport.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace zl {

// `scratch`: reductions take the scratch memory that NcclCommunicator's ordered ones take, for as
// long.
std::unique_ptr<Communicator> meta_communicator(int rank, int size, EventStream& events,
                                                bool scratch = false);

}  // namespace zl
