#include "dist/nccl_ranks.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "dist/nccl_communicator.h"
#include "dist/nccl_errors.h"
#include "dist/rank_threads.h"
#include "tensor/error.h"

namespace zl {
namespace {

// What joining and leaving look like in the flight recorder and in errors.
constexpr Call kJoining{.kind = Collective::barrier, .name = "joining NCCL"};

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

  // All ranks are here before any calls NCCL, so that one that cannot come ends the others without it.
  std::unique_ptr<Communicator> join(int rank, Meeting& meeting, EventStream& events) override {
    if (options_.choose_gpu) options_.choose_gpu(rank);
    const int64_t record = meeting.agree(rank, kJoining, events);
    std::unique_ptr<Communicator> communicator;
    or_tell(rank, meeting, "joining NCCL", [&] {
      communicator = std::make_unique<NcclCommunicator>(NcclJoin{api_, id_, rank, size_, timeout_, inside_[size_t(rank)]}, meeting,
                                                        events, options_.ordered);
    });
    meeting.tell(rank, record, FlightRecord::State::done);
    return communicator;
  }

  // NCCL is left by all together, and a rank whose body takes longer is not late.
  void part(Communicator& communicator, Meeting& meeting) override {
    ++returned_;
    while (returned_ < size_ && !meeting.failed()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (meeting.failed()) return;
    or_tell(communicator.rank(), meeting, "leaving NCCL", [&] { static_cast<NcclCommunicator&>(communicator).finish(); });
  }

  std::string where(int rank) const override {
    const char* function = inside_[size_t(rank)];
    return function ? function : "";
  }

 private:
  void or_tell(int rank, Meeting& meeting, const char* doing, const std::function<void()>& what) {
    try {
      what();
    } catch (const CommunicationError& error) {
      const std::string text = str("rank ", rank, " ", doing, ": ", error.what());
      if (meeting.fail(text)) throw CommunicationError(text);
      meeting.throw_failure(rank, kJoining);
    }
  }

  const int size_;
  const NcclApi& api_;
  const NcclOptions& options_;
  const std::chrono::milliseconds timeout_;
  const NcclUniqueId id_;
  std::array<std::atomic<const char*>, kMostRanks> inside_{};  // written by its rank, read for the report
  std::atomic<int> returned_{0};
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
