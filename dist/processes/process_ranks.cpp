#include "dist/processes/process_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "dist/processes/control_client.h"
#include "dist/trace/host_id.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

class ProcessRun {
 public:
  ProcessRun(const LaunchedRank& place, const RankOptions& options,
             const ProcessTransport& transport, const ProcessOptions& process)
      : place_(place), options_(options), transport_(transport), events_(place.rank) {
    const RankIdentity self{place.run,   place.rank, place.size, process.settings,
                            host_name(), boot_id(),  process.gpu};
    client_ = std::make_unique<ControlClient>(
        self, BootstrapOptions{place.address, place.port, at_least(1s), process.interrupted},
        at_least(500ms));
    client_->wait_for_all();
  }

  void run(const std::function<void(Communicator&)>& body) {
    {
      const std::jthread rank =
          start_thread(str("rank ", place_.rank), [this, &body](auto&) { run_rank(body); });
      watch();
    }
    const RunFailure failure = client_->failure();
    set_last_failure_report(failure.report);
    client_.reset();
    if (failure.detail.empty() && error_) std::rethrow_exception(error_);
    throw_failure(failure);
  }

 private:
  // Processes start and threads run when the system allows, so very short timeouts would fail.
  std::chrono::milliseconds at_least(std::chrono::milliseconds least) const {
    return options_.timeout.count() > 0 ? std::max(options_.timeout, least) : options_.timeout;
  }

  void run_rank(const std::function<void(Communicator&)>& body) {
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = transport_.join(*client_, events_);
      body(*communicator);
      communicator->finish();
    } catch (const std::exception& error) {
      failed(error.what(), detail_of(error));
    } catch (...) {
      failed("an exception that is no std::exception", "");
    }
    communicator.reset();
    client_->ended();
    ended_ = true;
  }

  void failed(const char* what, const std::string& detail) {
    error_ = std::current_exception();
    if (client_->failure().why.empty())
      client_->stopped({str("rank ", place_.rank, " stopped: ", what), detail});
  }

  // The main thread, until the rank and the run have ended.
  void watch() {
    const pid_t launcher = ::getppid();
    const bool is_launcher = place_.launcher != kNoLauncher;  // else a shell, which may end
    std::optional<std::chrono::steady_clock::time_point> failed_at;
    for (;; std::this_thread::sleep_for(ended_ ? 1ms : 5ms)) {
      const bool over = client_->over();
      if (ended_ && over) return;
      if (!over && is_launcher && ::getppid() != launcher)
        client_->stopped({str("the launcher of rank ", place_.rank, " (", place_.launcher,
                              ") has ended without ending its ranks")});
      if (options_.timeout.count() <= 0 || client_->failure().why.empty()) continue;
      const auto now = std::chrono::steady_clock::now();
      if (!failed_at) failed_at = now;
      if (now - *failed_at > options_.timeout + options_.grace) give_up();
    }
  }

  // A thread cannot be ended from outside, so the process exits.
  [[noreturn]] void give_up() {
    const RunFailure failure = client_->failure();
    const char* const function = transport_.inside();
    const std::string text =
        str("rank ", place_.rank, ": communication failed: ", failure.why, "\n", failure.report,
            "this rank did not end within timeout and grace", function ? "; it is in " : "",
            function ? function : "", "\n");
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
    std::_Exit(4);
  }

  const LaunchedRank& place_;
  const RankOptions& options_;
  const ProcessTransport& transport_;
  EventStream events_;  // outlives the records that point into it
  std::unique_ptr<ControlClient> client_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;  // written by the rank's thread before ended_
};

}  // namespace

void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const ProcessTransport& transport,
                      const ProcessOptions& process) {
  require_input(place.size <= kMostRanks, place.size, " ranks are too many: one run has up to ",
                kMostRanks, " processes");
  set_last_failure_report("");
  ProcessRun(place, options, transport, process).run(body);
}

}  // namespace zl
