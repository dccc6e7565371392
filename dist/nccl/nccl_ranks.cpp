#include "dist/nccl/nccl_ranks.h"

#include <array>
#include <atomic>
#include <chrono>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/threads/local_fingerprint_check.h"
#include "dist/threads/rank_threads.h"
#include "tensor/error.h"

namespace zl {
namespace {

class NcclTransport final : public RankTransport {
 public:
  NcclTransport(int size, const NcclApi& api, const NcclOptions& options,
                std::chrono::milliseconds timeout)
      : size_(size), api_(api), options_(options), timeout_(timeout), id_(nccl_unique_id(api)) {}

  std::unique_ptr<Communicator> join(int rank, Meeting& meeting, EventStream& events) override {
    if (options_.choose_gpu) options_.choose_gpu(rank);
    return std::make_unique<NcclCommunicator>(
        NcclJoin{api_, id_, rank, size_, timeout_, inside_[size_t(rank)]},
        std::make_unique<MeetingAgreement>(meeting, rank), events, options_.ordered);
  }
  void part(Communicator& communicator) override {
    static_cast<NcclCommunicator&>(communicator).finish();
  }

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
  std::array<std::atomic<const char*>, kMostRanks>
      inside_{};  // written by its rank, read for the report
};

}  // namespace

void run_nccl_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options,
                    const NcclOptions& nccl) {
  NcclTransport transport(size, require_nccl(nccl.api), nccl, options.timeout);
  run_rank_threads(size, transport, body, options);
}

}  // namespace zl
