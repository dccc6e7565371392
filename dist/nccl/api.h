// The functions of NCCL that zerolab calls, as a table: dist/nccl/library.cpp fills it with
// libnccl's, tests with those of a fake.
//
// Using it needs no header of NCCL or CUDA. Enumerators have nccl.h's values, which library.cpp
// asserts. Communicators never block: a function that returns in_progress is done when
// comm_get_async_error says so.
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

// The buffers of a call, in elements of one type. In place where nccl.h defines that; a send has no
// `to`, a receive no `from`.
struct NcclData {
  const void* from;
  void* to;
  size_t count;  // [n] as nccl.h counts it for that call
  NcclType type;
};

// The communicator of a call, and the cudaStream_t on which it moves its data.
struct NcclStream {
  NcclComm* comm;
  void* stream;
};

struct NcclApi {
  int compiled_for = 0;   // NCCL_VERSION_CODE of the header, 22809 for 2.28.9; 0: not asked
  bool needs_gpu = true;  // the fake also takes memory of the CPU, and no stream

  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm* comm) = nullptr;
  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank)(NcclComm** comm, int ranks, const NcclUniqueId& id,
                               int rank) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* state) = nullptr;
  NcclResult (*comm_finalize)(NcclComm* comm) = nullptr;
  NcclResult (*comm_destroy)(NcclComm* comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm* comm) = nullptr;

  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*all_reduce)(const NcclData& data,
                           NcclStream stream) = nullptr;  // these two: the sum
  NcclResult (*reduce_scatter)(const NcclData& data, NcclStream stream) = nullptr;
  NcclResult (*all_gather)(const NcclData& data, NcclStream stream) = nullptr;
  NcclResult (*broadcast)(const NcclData& data, int root, NcclStream stream) = nullptr;
  NcclResult (*send)(const NcclData& data, int peer, NcclStream stream) = nullptr;
  NcclResult (*receive)(const NcclData& data, int peer, NcclStream stream) = nullptr;
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

}  // namespace zl
