#include "dist/nccl_ranks.h"

#include <array>
#include <atomic>
#include <chrono>

#include "dist/meeting_agreement.h"
#include "dist/nccl_communicator.h"
#include "dist/nccl_errors.h"
#include "dist/rank_threads.h"
#include "tensor/error.h"

namespace zl {
namespace {

NcclUniqueId unique_id(const NcclApi& api) {
  NcclUniqueId id;
  if (const NcclResult result = api.get_unique_id(&id); result != NcclResult::success)
    throw CommunicationError(nccl_error_text(api, "ncclGetUniqueId", result, nullptr));
  return id;
}

class NcclTransport final : public RankTransport {
 public:
  NcclTransport(int size, const NcclApi& api, const NcclOptions& options, std::chrono::milliseconds timeout)
      : size_(size), api_(api), options_(options), timeout_(timeout), id_(unique_id(api)) {}

  std::unique_ptr<Communicator> join(int rank, Meeting& meeting, EventStream& events) override {
    if (options_.choose_gpu) options_.choose_gpu(rank);
    return std::make_unique<NcclCommunicator>(NcclJoin{api_, id_, rank, size_, timeout_, inside_[size_t(rank)]},
                                              std::make_unique<MeetingAgreement>(meeting, rank), events, options_.ordered);
  }
  void part(Communicator& communicator) override { static_cast<NcclCommunicator&>(communicator).finish(); }

  std::string where(int rank) const override {
    const char* function = inside_[size_t(rank)];
    return function ? function : "";
  }

 private:
  const int size_;
  const NcclApi& api_;
  const NcclOptions& options_;
  const std::chrono::milliseconds timeout_;
  const NcclUniqueId id_;
  std::array<std::atomic<const char*>, kMostRanks> inside_{};  // written by its rank, read for the report
};

}  // namespace

void run_nccl_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options, const NcclOptions& nccl) {
  const NcclInBuild found = nccl_in_build();
  const NcclApi* const api = nccl.api ? nccl.api : found.api;
  require_input(api, found.problem, ". Cure: ", found.cure);
  if (const std::string problem = nccl_version_problem(*api); !problem.empty()) throw InputError(problem);
  NcclTransport transport(size, *api, nccl, options.timeout);
  run_rank_threads(size, transport, body, options);
}

}  // namespace zl
