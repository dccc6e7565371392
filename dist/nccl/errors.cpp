#include <string_view>

#include "dist/communicator.h"
#include "dist/nccl/api.h"
#include "tensor/error.h"

namespace zl {
namespace {

struct KnownError {
  std::string_view said;  // a part of NCCL's message
  const char* cure;
};

// The first match counts. The messages are those of NCCL 2.28 and of the CUDA driver.
constexpr KnownError kKnownErrors[] = {
    {"Duplicate GPU",
     "start no more ranks than there are GPUs; several on one GPU work as threads without NCCL"},
    {"invalid device ordinal", "start fewer ranks, or look at CUDA_VISIBLE_DEVICES"},
    {"driver version is insufficient", "update the driver, or take the NCCL of an older CUDA"},
    {"No route to host",
     "set NCCL_SOCKET_IFNAME to an interface over which the machines reach each other, and open "
     "the firewall between them"},
    {"Connection refused",
     "look at the first error of rank 0, which may have ended; else a firewall is in the way"},
    {"no socket interface found",
     "set NCCL_SOCKET_IFNAME to an interface that is up, such as eth0, or lo within one machine"},
    {"ismatched NCCL version",
     "all ranks must load the same libnccl: compare what `zerolab doctor` says on all machines"},
    {"shared memory",
     "/dev/shm is too small or forbidden: in a container give --shm-size=1g, else set "
     "NCCL_SHM_DISABLE=1"},
    {"out of memory", "leave NCCL memory by smaller micro-batches, or set NCCL_BUFFSIZE=1048576"},
    {"illegal memory access",
     "a kernel before this call went wrong: run again with CUDA_LAUNCH_BLOCKING=1"}};

// By what NCCL said last, and by the kind of the error.
std::string cure(NcclResult result, std::string_view said) {
  for (const KnownError& known : kKnownErrors)
    if (said.find(known.said) != std::string_view::npos) return known.cure;
  if (result == NcclResult::remote_error)
    return "another rank or its machine has died: look for the first error among the other ranks";
  return "run again with NCCL_DEBUG=INFO, and look for the first WARN";
}

}  // namespace

const char* name(NcclResult result) {
  constexpr const char* kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  return size_t(result) < std::size(kNames) ? kNames[size_t(result)] : "an unknown result";
}

std::string nccl_error_text(const NcclApi& api, const char* function, NcclResult result,
                            NcclComm* comm) {
  const char *last = api.get_last_error(comm), *meaning = api.get_error_string(result);
  std::string said = last ? last : "";
  said.erase(said.find_last_not_of(" \t\n\r") + 1);
  std::string text =
      str(function, " gave ", name(result), " (", meaning ? meaning : "no text", ")");
  if (!said.empty()) text += str(", and NCCL said: ", said);
  return str(text, ". Cure: ", cure(result, said));
}

std::string nccl_version_text(int code) {
  const int major = code < 10000 ? code / 1000 : code / 10000,
            rest = code < 10000 ? code % 1000 : code % 10000;
  return str(major, ".", rest / 100, ".", rest % 100);
}

std::string nccl_version_problem(const NcclApi& api) {
  int found = 0;
  if (const NcclResult result = api.get_version(&found); result != NcclResult::success)
    return nccl_error_text(api, "ncclGetVersion", result, nullptr);
  if (found >= api.compiled_for) return "";
  return str("this program was compiled for NCCL ", nccl_version_text(api.compiled_for),
             ", and found ", nccl_version_text(found),
             ". Cure: put the newer libnccl.so.2 first in LD_LIBRARY_PATH, or build again with the "
             "older nccl.h");
}

const NcclApi& require_nccl(const NcclApi* given) {
  const NcclInBuild found = given ? NcclInBuild{given, "", ""} : nccl_in_build();
  const NcclApi* const api = found.api;
  require_input(api, found.problem, ". Cure: ", found.cure);
  if (const std::string problem = nccl_version_problem(*api); !problem.empty())
    throw InputError(problem);
  return *api;
}

}  // namespace zl
