// What NCCL's errors mean and how to fix them.
#pragma once

#include <string>

#include "dist/nccl/api.h"

namespace zl {

// "ncclSend gave ncclSystemError (unhandled system error), and NCCL said: connect: No route to
// host. Cure: …". `comm` may be null.
std::string nccl_error_text(const NcclApi& api, const char* function, NcclResult result,
                            NcclComm* comm);

// "2.28.9" of 22809.
std::string nccl_version_text(int code);

// Why a program compiled for another version cannot use the library that was found; "" if it can.
std::string nccl_version_problem(const NcclApi& api);

// `given`, or if that is null the library, which it opens. Throws InputError if there is none, or
// it is too old.
const NcclApi& require_nccl(const NcclApi* given);

}  // namespace zl
