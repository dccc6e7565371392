#include "dist/processes/process_ranks.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/processes/bootstrap.h"
#include "dist/processes/host_id.h"
#include "dist/processes/remote_control.h"
#include "dist/processes/rendezvous_host.h"
#include "dist/processes/wire.h"
#include "dist/threads/rank_threads.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

// An OutOfMemory as bytes, which every rank throws; "" for other errors.
std::string detail_of(const std::exception& error) {
  const auto* memory = dynamic_cast<const OutOfMemory*>(&error);
  if (!memory) return "";
  return WireWriter()
      .text(memory->what())
      .put(memory->rank)
      .put(memory->pool)
      .text(memory->phase)
      .text(memory->unit)
      .put(memory->asked)
      .take();
}

[[noreturn]] void throw_detail(const std::string& detail) {
  WireReader wire(detail);
  const std::string what = wire.text();
  const int rank = wire.get<int>();
  const Pool pool = wire.get<Pool>();
  const std::string phase = wire.text(), unit = wire.text();
  throw OutOfMemory(what, rank, pool, phase, unit, wire.get<int64_t>());
}

class ProcessRun {
 public:
  ProcessRun(const LaunchedRank& place, const RankOptions& options, const NcclOptions& nccl,
             const ProcessOptions& process)
      : place_(place),
        options_(options),
        nccl_(nccl),
        api_(require_nccl(nccl.api)),
        events_(place.rank, options.event_capacity) {
    const Newcomer self{place.run,   place.rank, place.size, process.settings,
                        host_name(), boot_id(),  process.gpu};
    // Processes start, and threads get their turn, when the system likes.
    const auto at_least = [&](std::chrono::milliseconds floor) {
      return options.timeout.count() > 0 ? std::max(options.timeout, floor) : options.timeout;
    };
    const Rendezvous where{place.address, place.port, at_least(1s), process.interrupted};
    if (place.rank == 0) {
      id_ = nccl_unique_id(api_);
      const std::string welcome(id_.bytes, sizeof id_.bytes);
      line_ = std::make_unique<MeetingHost>(receive_ranks(self, where, welcome), at_least(500ms));
    } else {
      Welcome welcome = find_rank_0(self, where);
      id_ = WireReader(welcome.welcome).get<NcclUniqueId>();
      line_ =
          std::make_unique<RemoteLine>(place.rank, std::move(welcome.connection), at_least(500ms));
    }
  }

  void run(const std::function<void(Communicator&)>& body) {
    {
      const std::jthread rank([this, &body] { run_rank(body); });
      watch();
    }
    const LineFailure failure = line_->failure();
    set_last_failure_report(failure.why.empty() ? "" : line_->report());
    line_.reset();
    if (!failure.detail.empty()) throw_detail(failure.detail);
    if (error_) std::rethrow_exception(error_);
    if (!failure.why.empty()) throw CommunicationError(failure.why);
  }

 private:
  void run_rank(const std::function<void(Communicator&)>& body) {
    pthread_setname_np(pthread_self(), str("rank ", place_.rank).c_str());
    std::unique_ptr<NcclCommunicator> communicator;
    try {
      if (nccl_.choose_gpu) nccl_.choose_gpu(place_.rank);
      communicator = std::make_unique<NcclCommunicator>(
          NcclJoin{api_, id_, place_.rank, place_.size, options_.timeout, inside_},
          line_->agreement(), events_, nccl_.ordered);
      body(*communicator);
      communicator->finish();
    } catch (const std::exception& error) {
      failed(error.what(), detail_of(error));
    } catch (...) {
      failed("an exception that is no std::exception", "");
    }
    communicator.reset();
    line_->ended();
    ended_ = true;
  }

  void failed(const char* what, const std::string& detail) {
    error_ = std::current_exception();
    if (line_->failure().why.empty())
      line_->stopped({str("rank ", place_.rank, " stopped: ", what), detail});
  }

  void watch() {
    std::optional<std::chrono::steady_clock::time_point> failed_at;
    for (;; std::this_thread::sleep_for(ended_ ? 1ms : 5ms)) {
      const bool ended = ended_, done = look();
      if (ended && done) return;
      if (options_.timeout.count() <= 0 || line_->failure().why.empty()) continue;
      const auto now = std::chrono::steady_clock::now();
      if (!failed_at) failed_at = now;
      if (now - *failed_at > options_.timeout + options_.grace) give_up();
    }
  }

  bool look() {
    try {
      return line_->watch();
    } catch (const std::exception&
                 error) {  // no memory: without a watch the rank's thread may wait for ever
      std::fprintf(stderr, "rank %d: %s\n", place_.rank, error.what());
      std::_Exit(4);
    }
  }

  // The rank's thread cannot be ended from outside, so the process ends instead.
  [[noreturn]] void give_up() {
    const char* const function = inside_;
    const std::string text =
        str("rank ", place_.rank, ": communication failed: ", line_->failure().why, "\n",
            line_->report(), "this rank did not end within timeout and grace; it is ",
            function ? "in " : "outside NCCL", function ? function : "", "\n");
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
    std::_Exit(4);
  }

  const LaunchedRank& place_;
  const RankOptions& options_;
  const NcclOptions& nccl_;
  const NcclApi& api_;
  NcclUniqueId id_;
  EventStream events_;  // outlives the line, whose records point into it
  std::unique_ptr<RankLine> line_;
  std::atomic<const char*> inside_{nullptr};  // the function of NCCL in which the rank is
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;  // written by the rank's thread before ended_
};

}  // namespace

void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const NcclOptions& nccl,
                      const ProcessOptions& process) {
  require_input(place.size <= kMostRanks, place.size, " ranks are too many: one run has up to ",
                kMostRanks, " processes");
  set_last_failure_report("");
  ProcessRun(place, options, nccl, process).run(body);
}

}  // namespace zl
