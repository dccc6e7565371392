// The functions of NCCL that zerolab calls, as a table: dist/nccl/library.cpp fills it with
// libnccl's, tests with those of a fake.
//
// Using it needs no header of NCCL or CUDA. libnccl's functions are called through these pointers
// without any code in between, only joining has some. That works because both sides pass the same
// number of parameters, of the same sizes and kinds (pointer, number, type of data, operator), and
// because enumerators have nccl.h's values: library.cpp asserts all of this against nccl.h when it
// is compiled.
//
// Communicators never block: a function that returns in_progress is done when comm_get_async_error
// says so.
#pragma once

#include <cstddef>
#include <string>

namespace zl {

struct NcclComm;  // ncclComm, owned by NCCL

struct NcclUniqueId {
  char bytes[128] = {};
};

enum class NcclResult {
  success,
  unhandled_cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress
};
const char* name(NcclResult result);  // "ncclSystemError"

enum class NcclType { uint8 = 1, int32 = 2, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class NcclOperator { sum };

struct NcclApi {
  int compiled_for = 0;   // NCCL_VERSION_CODE of the header, 22809 for 2.28.9; 0: not asked
  bool needs_gpu = true;  // the fake also takes memory of the CPU, and no stream

  NcclResult (*get_version)(int* version);
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(NcclComm* comm);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank)(NcclComm** comm, int ranks, NcclUniqueId id, int rank);
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* state);
  NcclResult (*comm_finalize)(NcclComm* comm);
  NcclResult (*comm_destroy)(NcclComm* comm);
  NcclResult (*comm_abort)(NcclComm* comm);

  NcclResult (*group_start)();
  NcclResult (*group_end)();
  // `count` [n] of elements as nccl.h counts it for that call, in place where nccl.h defines that.
  // `stream`: a cudaStream_t, on which the data moves.
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclType, NcclOperator,
                           NcclComm* comm, void* stream);
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count, NcclType, NcclOperator,
                               NcclComm* comm, void* stream);
  NcclResult (*all_gather)(const void* from, void* to, size_t count, NcclType, NcclComm* comm,
                           void* stream);
  NcclResult (*send)(const void* from, size_t count, NcclType, int peer, NcclComm* comm,
                     void* stream);
  NcclResult (*receive)(void* to, size_t count, NcclType, int peer, NcclComm* comm, void* stream);
};

// The NCCL of this build. Opens the library.
struct NcclInBuild {
  const NcclApi* api = nullptr;  // null: NCCL is not built in, or its library cannot be opened
  std::string problem, cure;     // why not, and how to fix it; "" if it can be used
};
NcclInBuild nccl_in_build();

// NCCL_VERSION_CODE of the header that this program was compiled with; 0: NCCL is not built in.
// Opens nothing.
int nccl_compiled_for();

// ---- what NCCL's errors mean, and how to fix them ----------------------------------------------

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
