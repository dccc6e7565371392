// The trials of bench comm through the fake.
#include <catch2/catch_test_macros.hpp>
#include <list>

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
  void withdraw(int64_t record, bool unwinding) noexcept override {
    others_.withdraw(record, unwinding);
  }
  void fail(const std::string& why) override { others_.fail(why); }
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
  std::list<CountedCheck> checks[2];
  const auto counted = [&](const LaunchedRank& place) {
    ProcessTransport transport = nccl_transport(place, {}, {.api = &api});
    transport.join = [join = transport.join, &mine = checks[place.rank]](const std::string& welcome,
                                                                         FingerprintCheck& others,
                                                                         EventStream& events) {
      return join(welcome, mine.emplace_back(others), events);
    };
    return transport;
  };
  std::vector<int> checked(2), timed(2);
  run_as_processes_would(
      2,
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
      within(std::chrono::seconds(20)), counted);
  CHECK(checked == std::vector<int>{1, 1});
  CHECK(timed == std::vector<int>{0, 0});
  CHECK(fake.misuse() == "");
}
