// Ranks of the fake, each a process or a thread, that call NCCL's functions directly.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tests/nccl/fake/fake_nccl.h"
#include "tests/nccl/processes/processes.h"

namespace zl::test {

// In a child: says what is wrong by ending it.
template <class... Args>
void expect(bool ok, const Args&... what) {
  if (!ok) throw std::runtime_error(str(what...));
}

class FakeRank {
 public:
  FakeRank(const NcclApi& api, const NcclUniqueId& id, int rank, int size)
      : api(api), rank(rank), size(size) {
    expect(api.comm_init_rank(&comm, size, id, rank) == NcclResult::in_progress, "rank ", rank,
           " cannot join");
  }

  // Polls until NCCL is done; in_progress: it was not within `limit`.
  NcclResult settle(std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    for (int polls = 0;; ++polls) {
      NcclResult state = NcclResult::success;
      expect(api.comm_get_async_error(comm, &state) == NcclResult::success, "a poll failed");
      if (state != NcclResult::in_progress) return state;
      if (std::chrono::steady_clock::now() > until) return state;
      if (polls > 100)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      else
        std::this_thread::yield();
    }
  }
  void done(NcclResult asked, const char* what) const {
    expect(asked == NcclResult::in_progress || asked == NcclResult::success, what,
           " was refused: ", name(asked));
    const NcclResult state = settle();
    expect(state == NcclResult::success, what, " on rank ", rank, " ended as ", name(state));
  }
  void group(const std::function<void()>& calls) const {
    expect(api.group_start() == NcclResult::success, "no group");
    calls();
    done(api.group_end(), "the group");
  }
  void leave() const {
    done(api.comm_finalize(comm), "leaving");
    expect(api.comm_destroy(comm) == NcclResult::success, "the end");
  }
  void abort() const {
    const auto began = std::chrono::steady_clock::now();
    expect(api.comm_abort(comm) == NcclResult::success, "no abort");
    expect(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(500),
           "a slow abort");
  }

  const NcclApi api;
  const int rank, size;
  NcclComm* comm = nullptr;
  NcclStream stream() const { return {comm, nullptr}; }
};

struct FakeRun {
  std::vector<Fault> faults = {};
  Deaths deaths = Deaths::noticed;
  std::chrono::milliseconds limit{30'000};
};

inline NcclUniqueId new_id(const FakeNccl& fake) {
  NcclUniqueId id;
  expect(fake.api().get_unique_id(&id) == NcclResult::success, "no id");
  return id;
}
inline NcclUniqueId new_id() { return new_id(FakeNccl()); }

// A rank's process: joins, does `body`, and says how NCCL was misused, if it was.
inline Processes::Body rank_of(int size, const NcclUniqueId& id, const FakeRun& run,
                               const std::function<void(FakeRank&)>& body) {
  return [=](int child, const Processes::Say& say) {
    FakeNccl fake(run.faults, run.deaths);
    FakeRank rank(fake.api(), id, child, size);
    body(rank);
    say(fake.misuse());
    return fake.misuse().empty() ? 0 : 1;
  };
}

inline std::vector<ProcessEnd> run_fake_ranks(int size, const std::function<void(FakeRank&)>& body,
                                              const FakeRun& run = {}) {
  return run_processes(size, rank_of(size, new_id(), run, body), run.limit);
}

// The same with ranks that are threads. Returns how many ended well.
inline int run_thread_ranks(const FakeNccl& fake, int size,
                            const std::function<void(FakeRank&)>& body, const NcclUniqueId& id) {
  std::atomic<int> well{0};
  std::vector<std::jthread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([&, r] {
      FakeRank rank(fake.api(), id, r, size);
      body(rank);
      ++well;
    });
  ranks.clear();
  return well;
}
inline int run_thread_ranks(const FakeNccl& fake, int size,
                            const std::function<void(FakeRank&)>& body) {
  return run_thread_ranks(fake, size, body, new_id(fake));
}

// "" if all ended well, else how each ended.
inline std::string not_well(const std::vector<ProcessEnd>& ends) {
  std::string text;
  for (size_t r = 0; r < ends.size(); ++r)
    if (!ends[r].well()) text += str("rank ", r, ": ", describe(ends[r]), "\n");
  return text;
}

}  // namespace zl::test
