// The trials of bench comm through the fake.
#include <catch2/catch_test_macros.hpp>
#include <list>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/trace/collective_trial.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

// Counts the comparisons for which a rank that is a process would send a message and wait for its
// answer (dist/processes/control_client.cpp).
class CountedCheck final : public FingerprintCheck {
 public:
  explicit CountedCheck(FingerprintCheck& others) : others_(others) {}
  int compared = 0;

  int64_t require_same_call(const Call& call, const EventStream& events) override {
    compared += !only_on_timeout_ && call.kind != Collective::barrier;
    return others_.require_same_call(call, events);
  }
  void issue_together(const Call& call, const std::function<void()>& issue) override {
    others_.issue_together(call, issue);
  }
  void compare_calls_only_on_timeout() override { only_on_timeout_ = true; }
  void set_state(int64_t record, CallState state) override { others_.set_state(record, state); }
  std::vector<std::string> all_gather_object(const Call& call, const std::string& text,
                                             const EventStream& events) override {
    return others_.all_gather_object(call, text, events);
  }
  int64_t post(const Call& call, const EventStream& events) override {
    return others_.post(call, events);
  }
  void wait_for_match(int64_t record) override { others_.wait_for_match(record); }
  bool has_match(int64_t record) const override { return others_.has_match(record); }
  void withdraw(int64_t record, bool unwinding) noexcept override {
    others_.withdraw(record, unwinding);
  }
  bool fail(const std::string& why) override { return others_.fail(why); }
  bool failed() const override { return others_.failed(); }

 private:
  std::string failure_in(const Call& call) override { others_.throw_failure(call); }

  FingerprintCheck& others_;
  bool only_on_timeout_ = false;
};

}  // namespace

TEST_CASE("bench comm compares the calls that it checks, and none that it times", "[nccl]") {
  FakeNccl fake;
  const NcclApi api = fake.api();
  const NcclUniqueId id = nccl_unique_id(api);
  std::atomic<const char*> inside[2] = {nullptr, nullptr};
  std::list<CountedCheck> checks[2];
  RankTransport transport;
  transport.join = [&](int rank, FingerprintCheck& others, EventStream& events) {
    return std::make_unique<NcclCommunicator>(
        NcclJoin{api, id, rank, 2, std::chrono::seconds(20), inside[rank]},
        checks[rank].emplace_back(others), events, true);
  };
  std::vector<int> checked(2), timed(2);
  run_rank_threads(
      2, transport,
      [&](Communicator& comm) {
        const auto r = size_t(comm.rank());
        Rank rank(comm);
        const int& compared = checks[r].front().compared;
        CollectiveTrial trial({Collective::all_reduce, 66}, comm, rank.memory);
        trial.fill();
        trial.call();
        checked[r] = compared;
        for (int i = 0; i < 5; ++i) (void)trial.time();
        timed[r] = compared - checked[r];
      },
      within(std::chrono::seconds(20)));
  CHECK(checked == std::vector<int>{1, 1});
  CHECK(timed == std::vector<int>{0, 0});
  CHECK(fake.misuse() == "");
}
