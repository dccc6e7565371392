// The table of dist/nccl/api.h, filled with libnccl's functions. The only file that sees nccl.h.
#include <nccl.h>

#include <cstring>
#include <type_traits>

#include "dist/nccl/api.h"
#include "tensor/platform/shared_library.h"

namespace zl {
namespace {

static_assert(int(NcclResult::success) == ncclSuccess &&
              int(NcclResult::remote_error) == ncclRemoteError &&
              int(NcclResult::in_progress) == ncclInProgress);
static_assert(int(NcclType::int32) == ncclInt32 && int(NcclType::float16) == ncclFloat16);
static_assert(int(NcclType::float32) == ncclFloat32 && int(NcclType::float64) == ncclFloat64);
static_assert(int(NcclType::bfloat16) == ncclBfloat16 && int(NcclType::uint8) == ncclUint8);
static_assert(int(NcclOperator::sum) == ncclSum && sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 3),
              "communicators that do not block came with NCCL 2.14");

// How a value of this type is passed and read.
template <class T>
constexpr int kKind = std::is_pointer_v<T> + 2 * std::is_enum_v<T>;
template <class Ours, class Theirs>
constexpr bool kAgree = sizeof(Ours) == sizeof(Theirs) && kKind<Ours> == kKind<Theirs>;

// Takes the library's function, whose parameters agree with ours in number and kind.
template <class... Ours, class Result, class... Theirs, class Raw>
void take(Result (*&ours)(Ours...), Raw (*)(Theirs...), SharedLibrary::Function function) {
  static_assert((kAgree<Ours, Theirs> && ...) && kAgree<Result, Raw>);
  ours = function;
}

decltype(&::ncclCommInitRankConfig) init_rank = nullptr;

NcclResult comm_init_rank(NcclComm** comm, int ranks, NcclUniqueId id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId raw_id;
  std::memcpy(&raw_id, &id, sizeof id);
  return NcclResult(init_rank(reinterpret_cast<ncclComm_t*>(comm), ranks, raw_id, rank, &config));
}

NcclApi open_nccl() {
  const SharedLibrary file("NCCL", str("libnccl.so.", NCCL_MAJOR), ZEROLAB_NCCL_FOLDER);
  NcclApi api{};
  api.compiled_for = NCCL_VERSION_CODE;
  api.comm_init_rank = comm_init_rank;
  init_rank = file.function("ncclCommInitRankConfig");
#define ZL_FUNCTION(ours, name) take(api.ours, decltype (&::name)(nullptr), file.function(#name))
  ZL_FUNCTION(get_version, ncclGetVersion);
  ZL_FUNCTION(get_error_string, ncclGetErrorString);
  ZL_FUNCTION(get_last_error, ncclGetLastError);
  ZL_FUNCTION(get_unique_id, ncclGetUniqueId);
  ZL_FUNCTION(comm_get_async_error, ncclCommGetAsyncError);
  ZL_FUNCTION(comm_finalize, ncclCommFinalize);
  ZL_FUNCTION(comm_destroy, ncclCommDestroy);
  ZL_FUNCTION(comm_abort, ncclCommAbort);
  ZL_FUNCTION(group_start, ncclGroupStart);
  ZL_FUNCTION(group_end, ncclGroupEnd);
  ZL_FUNCTION(all_reduce, ncclAllReduce);
  ZL_FUNCTION(reduce_scatter, ncclReduceScatter);
  ZL_FUNCTION(all_gather, ncclAllGather);
  ZL_FUNCTION(send, ncclSend);
  ZL_FUNCTION(receive, ncclRecv);
#undef ZL_FUNCTION
  return api;
}

}  // namespace

// The library is opened on first use: mapping and relocating its 200 MiB takes time, and most runs
// do not need it.
NcclInBuild nccl_in_build() {
  try {
    static const NcclApi api = open_nccl();
    return {&api, "", ""};
  } catch (const LibraryError& e) {
    return {nullptr, e.problem, e.cure};
  }
}

int nccl_compiled_for() { return NCCL_VERSION_CODE; }

}  // namespace zl
