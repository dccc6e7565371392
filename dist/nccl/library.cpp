// The table of dist/nccl/api.h, filled with libnccl's functions. The only file that sees nccl.h.
#include <nccl.h>

#include <cstring>

#include "dist/nccl/api.h"
#include "tensor/platform/shared_library.h"

namespace zl {
namespace {

static_assert(int(NcclResult::success) == ncclSuccess &&
              int(NcclResult::unhandled_cuda_error) == ncclUnhandledCudaError);
static_assert(int(NcclResult::system_error) == ncclSystemError &&
              int(NcclResult::internal_error) == ncclInternalError);
static_assert(int(NcclResult::invalid_argument) == ncclInvalidArgument &&
              int(NcclResult::invalid_usage) == ncclInvalidUsage);
static_assert(int(NcclResult::remote_error) == ncclRemoteError &&
              int(NcclResult::in_progress) == ncclInProgress);
static_assert(int(NcclType::int32) == ncclInt32 && int(NcclType::float16) == ncclFloat16);
static_assert(int(NcclType::float32) == ncclFloat32 && int(NcclType::float64) == ncclFloat64);
static_assert(int(NcclType::bfloat16) == ncclBfloat16);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId) &&
              sizeof(NcclUniqueId::bytes) == NCCL_UNIQUE_ID_BYTES);
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 3),
              "communicators that do not block came with NCCL 2.14");

// libnccl's functions as nccl.h declares them. The library is opened on first use: mapping and
// relocating its 200 MiB takes time, and most runs do not need it.
struct Library {
  SharedLibrary file{"NCCL", str("libnccl.so.", NCCL_MAJOR), ZEROLAB_NCCL_FOLDER};
#define ZL_FUNCTION(name) decltype(&::name) name = file.function(#name)
  ZL_FUNCTION(ncclGetVersion);
  ZL_FUNCTION(ncclGetErrorString);
  ZL_FUNCTION(ncclGetLastError);
  ZL_FUNCTION(ncclGetUniqueId);
  ZL_FUNCTION(ncclCommInitRankConfig);
  ZL_FUNCTION(ncclCommGetAsyncError);
  ZL_FUNCTION(ncclCommFinalize);
  ZL_FUNCTION(ncclCommDestroy);
  ZL_FUNCTION(ncclCommAbort);
  ZL_FUNCTION(ncclGroupStart);
  ZL_FUNCTION(ncclGroupEnd);
  ZL_FUNCTION(ncclAllReduce);
  ZL_FUNCTION(ncclReduceScatter);
  ZL_FUNCTION(ncclAllGather);
  ZL_FUNCTION(ncclBroadcast);
  ZL_FUNCTION(ncclSend);
  ZL_FUNCTION(ncclRecv);
#undef ZL_FUNCTION
};

const Library& nccl() {
  static const Library library;
  return library;
}

ncclComm_t raw(NcclComm* comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t raw_stream(NcclStream stream) { return static_cast<cudaStream_t>(stream.stream); }
ncclDataType_t raw_type(const NcclData& data) { return ncclDataType_t(data.type); }

template <auto function>
NcclResult sum(const NcclData& data, NcclStream stream) {
  return NcclResult((nccl().*function)(data.from, data.to, data.count, raw_type(data), ncclSum,
                                       raw(stream.comm), raw_stream(stream)));
}

const NcclApi kTable{
    .compiled_for = NCCL_VERSION_CODE,
    .get_version = [](int* version) { return NcclResult(nccl().ncclGetVersion(version)); },
    .get_error_string =
        [](NcclResult result) { return nccl().ncclGetErrorString(ncclResult_t(result)); },
    .get_last_error = [](NcclComm* comm) { return nccl().ncclGetLastError(raw(comm)); },
    .get_unique_id =
        [](NcclUniqueId* id) {
          return NcclResult(nccl().ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(id)));
        },
    .comm_init_rank =
        [](NcclComm** comm, int ranks, const NcclUniqueId& id, int rank) {
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          config.blocking = 0;
          ncclUniqueId raw_id;
          std::memcpy(&raw_id, &id, sizeof id);
          return NcclResult(nccl().ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(comm),
                                                          ranks, raw_id, rank, &config));
        },
    .comm_get_async_error =
        [](NcclComm* comm, NcclResult* state) {
          ncclResult_t raw_state = ncclSuccess;
          const ncclResult_t result = nccl().ncclCommGetAsyncError(raw(comm), &raw_state);
          *state = NcclResult(raw_state);
          return NcclResult(result);
        },
    .comm_finalize = [](NcclComm* comm) { return NcclResult(nccl().ncclCommFinalize(raw(comm))); },
    .comm_destroy = [](NcclComm* comm) { return NcclResult(nccl().ncclCommDestroy(raw(comm))); },
    .comm_abort = [](NcclComm* comm) { return NcclResult(nccl().ncclCommAbort(raw(comm))); },
    .group_start = [] { return NcclResult(nccl().ncclGroupStart()); },
    .group_end = [] { return NcclResult(nccl().ncclGroupEnd()); },
    .all_reduce = sum<&Library::ncclAllReduce>,
    .reduce_scatter = sum<&Library::ncclReduceScatter>,
    .all_gather =
        [](const NcclData& data, NcclStream stream) {
          return NcclResult(nccl().ncclAllGather(data.from, data.to, data.count, raw_type(data),
                                                 raw(stream.comm), raw_stream(stream)));
        },
    .broadcast =
        [](const NcclData& data, int root, NcclStream stream) {
          return NcclResult(nccl().ncclBroadcast(data.from, data.to, data.count, raw_type(data),
                                                 root, raw(stream.comm), raw_stream(stream)));
        },
    .send =
        [](const NcclData& data, int peer, NcclStream stream) {
          return NcclResult(nccl().ncclSend(data.from, data.count, raw_type(data), peer,
                                            raw(stream.comm), raw_stream(stream)));
        },
    .receive =
        [](const NcclData& data, int peer, NcclStream stream) {
          return NcclResult(nccl().ncclRecv(data.to, data.count, raw_type(data), peer,
                                            raw(stream.comm), raw_stream(stream)));
        }};

}  // namespace

int nccl_compiled_for() { return NCCL_VERSION_CODE; }

NcclInBuild nccl_in_build() {
  try {
    nccl();
    return {&kTable, "", ""};
  } catch (const LibraryError& e) {
    return {nullptr, e.problem, e.cure};
  }
}

}  // namespace zl
