// The fake fails as NCCL does: what does not fit never completes, who dies is noticed or not, and
// misuse is noted.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>

#include "tests/nccl/processes/fake_rank.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;
using R = NcclResult;

namespace {

NcclData floats(std::vector<float>& values, size_t count) {
  return {values.data(), values.data(), count, NcclType::float32};
}

using Asks = std::function<R(const FakeRank& rank, std::vector<float>& values)>;

// What each rank's call has become after a while; then all abort.
std::vector<ProcessEnd> after_a_while(int ranks, const Asks& asks,
                                      std::chrono::milliseconds limit = 60ms) {
  return run_fake_ranks(ranks,
                        [=](FakeRank& r) {
                          r.done(R::success, "joining");
                          std::vector<float> values(4000, float(r.rank));
                          (void)asks(r, values);
                          const R state = r.settle(limit);
                          if (state != R::success)
                            std::this_thread::sleep_for(100ms);  // until all have looked
                          r.abort();
                          expect(state == R::success, name(state));
                        },
                        {.deaths = Deaths::unnoticed});
}

// One all_reduce after the other, until one does not succeed; says how that ended.
void add_until_it_fails(const FakeRank& r, const Processes::Say& say,
                        std::chrono::milliseconds limit) {
  std::vector<float> values(1000, 1.0f);
  for (;;) {
    (void)r.api.all_reduce(floats(values, 1000), r.stream());
    if (const R state = r.settle(limit); state != R::success) return say(name(state));
  }
}

Processes::Body adding_rank(int ranks, Deaths deaths, std::chrono::milliseconds limit) {
  return [=, id = new_id()](int child, const Processes::Say& say) {
    FakeNccl fake({}, deaths);
    FakeRank r(fake.api(), id, child, ranks);
    r.done(R::success, "joining");
    add_until_it_fails(r, say, limit);
    r.abort();
    return 0;
  };
}

bool all_said(const std::vector<ProcessEnd>& ends, const std::string& what) {
  return std::ranges::all_of(ends, [&](const ProcessEnd& end) { return end.said == what; });
}

}  // namespace

TEST_CASE("in the fake calls that do not fit never complete, on no rank", "[nccl]") {
  require_forks();
  struct Case {
    const char* title;
    Asks asks;
  };
  const auto own = [](const FakeRank& r) { return size_t(r.rank == 1 ? 1001 : 1000); };
  const std::vector<Case> cases = {
      {"all_reduce, another count",
       [=](auto& r, auto& v) { return r.api.all_reduce(floats(v, own(r)), r.stream()); }},
      {"reduce_scatter, another count",
       [=](auto& r, auto& v) { return r.api.reduce_scatter(floats(v, own(r)), r.stream()); }},
      {"all_gather, another count",
       [=](auto& r, auto& v) { return r.api.all_gather(floats(v, own(r)), r.stream()); }},
      {"broadcast, another count",
       [=](auto& r, auto& v) { return r.api.broadcast(floats(v, own(r)), 0, r.stream()); }},
      {"broadcast, another root",
       [](auto& r, auto& v) {
         return r.api.broadcast(floats(v, 9), r.rank == 1 ? 1 : 0, r.stream());
       }},
      {"another function",
       [](auto& r, auto& v) {
         return (r.rank == 1 ? r.api.all_reduce : r.api.all_gather)(floats(v, 9), r.stream());
       }},
      {"another type of the same size",
       [](auto& r, auto& v) {
         NcclData data = floats(v, 9);
         if (r.rank == 1) data.type = NcclType::int32;
         return r.api.all_reduce(data, r.stream());
       }},
      {"a rank that does nothing", [](auto& r, auto& v) {
         if (r.rank != 1) return r.api.all_reduce(floats(v, 9), r.stream());
         return std::this_thread::sleep_for(60ms),
                r.api.group_start();  // which asks for nothing, and is never polled
       }}};
  for (const Case& one : cases) {
    DYNAMIC_SECTION(one.title) {
      auto ends = after_a_while(3, one.asks);
      if (std::string(one.title) == "a rank that does nothing") ends.erase(ends.begin() + 1);
      CAPTURE(not_well(ends));
      CHECK(all_said(ends, "ncclInProgress"));
    }
  }
  CHECK(not_well(after_a_while(
            3, [](auto& r, auto& v) { return r.api.all_gather(floats(v, 1000), r.stream()); },
            10s)) == "");
}

TEST_CASE("in the fake a receive of another count than was sent never completes", "[nccl]") {
  require_forks();
  const size_t count = GENERATE(7, 8);
  const auto ends = after_a_while(
      2,
      [=](auto& r, auto& v) {
        return r.rank == 0 ? r.api.send(floats(v, 8), 1, r.stream())
                           : r.api.receive(floats(v, count), 0, r.stream());
      },
      count == 8 ? 10'000ms : 60ms);
  CHECK(ends[0].well());  // its bytes have left
  CHECK(ends[1].well() == (count == 8));
  if (count != 8) CHECK(ends[1].said == "ncclInProgress");
}

TEST_CASE(
    "a rank of the fake that is killed is a remote error to the others, or nothing ever "
    "again",
    "[nccl]") {
  require_forks();
  const Deaths deaths = GENERATE(Deaths::noticed, Deaths::unnoticed);
  for (int round = 0; round < 3; ++round) {
    Processes ranks(3, adding_rank(3, deaths, deaths == Deaths::noticed ? 10'000ms : 400ms));
    CHECK(!ranks.watch(std::chrono::milliseconds(20 + 13 * round)));
    ranks.signal(1, SIGKILL);
    const auto ends = ranks.wait(10s);
    const std::string expected = deaths == Deaths::noticed ? "ncclRemoteError" : "ncclInProgress";
    CAPTURE(describe(ends[0]), describe(ends[2]));
    CHECK(ends[1].signal == SIGKILL);
    CHECK(ends[0].well());
    CHECK(ends[0].said == expected);
    // Rank 2 may hear that rank 0 has left before it has looked at rank 1; without hearing of
    // either it waits.
    CHECK(ends[2].well());
    CHECK(ends[2].said == expected);
  }
}

TEST_CASE(
    "a death is seen by ranks of the fake that ask for nothing, and after all that was "
    "sent",
    "[nccl]") {
  require_forks();
  const auto ends = run_fake_ranks(2, [](FakeRank& r) {
    r.done(R::success, "joining");
    std::vector<float> values(1000, float(r.rank));
    if (r.rank == 1) {
      r.done(r.api.send(floats(values, 1000), 0, r.stream()), "the first send, which connects");
      r.done(r.api.receive(floats(values, 1000), 0, r.stream()), "receive");
      r.done(r.api.send(floats(values, 1000), 0, r.stream()), "send");
      _exit(0);
    }
    r.done(r.api.receive(floats(values, 1000), 1, r.stream()), "receive");
    (void)r.api.send(floats(values, 1000), 1, r.stream());
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (r.settle() == R::success && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
    expect(r.settle() == R::remote_error, "the death was not noticed behind what was not received");
    expect(r.settle() == R::remote_error, "the death was forgotten");
    r.abort();
  });
  CHECK(not_well(ends) == "");
  const auto taken =
      run_fake_ranks(2,
                     [](FakeRank& r) {
                       r.done(R::success, "joining");
                       std::vector<float> values(1000, float(r.rank));
                       if (r.rank == 1) {
                         r.done(r.api.send(floats(values, 1000), 0, r.stream()), "send");
                         _exit(0);
                       }
                       std::this_thread::sleep_for(50ms);
                       r.done(r.api.receive(floats(values, 1000), 1, r.stream()), "receive");
                       r.abort();
                       expect(values == std::vector<float>(1000, 1.0f), "what came");
                     },
                     {.deaths = Deaths::unnoticed});
  CHECK(not_well(taken) == "");
}

TEST_CASE(
    "ranks of the fake abort at once in the middle of what is large, and the others hear "
    "of it",
    "[nccl]") {
  require_forks();
  const auto ends = run_fake_ranks(3, [](FakeRank& r) {
    r.done(R::success, "joining");
    std::vector<float> values(8'000'000, 1.0f);
    (void)r.api.all_reduce(floats(values, values.size()), r.stream());
    if (r.rank == 1) return r.abort();
    expect(r.settle() == R::remote_error, "the others");
    r.abort();
  });
  CHECK(not_well(ends) == "");
}

TEST_CASE("the fake notes what NCCL does not allow", "[nccl]") {
  const bool processes = GENERATE(false, true);
  std::optional<FakeNccl> one;
  processes ? one.emplace(std::vector<Fault>(), Deaths::noticed) : one.emplace();
  const FakeNccl& fake = *one;
  const NcclApi api = fake.api();
  NcclUniqueId id;
  NcclComm *first = nullptr, *second = nullptr;
  CHECK(api.comm_init_rank(&first, 1, id, 0) == R::invalid_argument);  // no id
  CHECK(api.get_unique_id(&id) == R::success);
  CHECK(api.comm_init_rank(&first, 2, id, 2) == R::invalid_argument);
  CHECK(fake.misuse() == "");
  CHECK(api.comm_init_rank(&first, 2, id, 0) == R::in_progress);
  std::vector<float> values(4);
  CHECK(api.all_reduce(floats(values, 4), {first, nullptr}) == R::in_progress);
  CHECK_THAT(fake.misuse(), ContainsSubstring("ncclAllReduce while another call is in progress") &&
                                ContainsSubstring("rank 0 was ended 0 times"));
  CHECK(api.send(floats(values, 4), 2, {first, nullptr}) == R::invalid_argument);
  CHECK(api.broadcast(floats(values, 4), -1, {first, nullptr}) == R::invalid_argument);
  if (processes) {
    CHECK(api.send(floats(values, 4), 1, {first, &values}) == R::invalid_argument);
    CHECK_THAT(fake.misuse(), ContainsSubstring("ncclSend in a stream"));
  }
  std::thread([&] { (void)api.all_reduce(floats(values, 4), {first, nullptr}); }).join();
  CHECK_THAT(fake.misuse(), ContainsSubstring("ncclAllReduce on another thread"));
  CHECK(api.comm_init_rank(&second, 2, id, 0) == R::invalid_usage);
  CHECK_THAT(fake.misuse(), ContainsSubstring("two ranks 0"));
  CHECK(api.group_start() == R::success);
  CHECK_THAT(fake.misuse(), ContainsSubstring("a group is open"));
  CHECK(api.group_end() == R::success);
  CHECK(api.group_end() == R::invalid_usage);
  CHECK(api.comm_destroy(second) == R::success);
  CHECK_THAT(fake.misuse(), ContainsSubstring("destroyed before it was finalised"));
  CHECK(api.comm_abort(first) == R::success);
  CHECK(api.comm_abort(first) == R::success);
  CHECK(api.all_reduce(floats(values, 4), {first, nullptr}) == R::invalid_argument);
  R state = R::success;
  CHECK(api.comm_get_async_error(first, &state) == R::invalid_argument);
  CHECK_THAT(fake.misuse(), ContainsSubstring("aborted after its end") &&
                                ContainsSubstring("ncclAllReduce after the end") &&
                                ContainsSubstring("a poll after the end"));
}

TEST_CASE("faults are read from words, and words that mean none are refused", "[nccl]") {
  const auto faults = faults_from(
      "ncclAllGather:never:rank=2:call=3; "
      "ncclSend:fails:rank=-1:result=ncclRemoteError:said=reset:times=7");
  REQUIRE(faults.size() == 2);
  CHECK((faults[0].function == "ncclAllGather" && faults[0].kind == K::never &&
         faults[0].rank == 2 && faults[0].call == 3));
  CHECK((faults[1].function == "ncclSend" && faults[1].kind == K::fails && faults[1].rank == -1 &&
         faults[1].call == 1));
  CHECK((faults[1].result == R::remote_error && faults[1].said == "reset" && faults[1].times == 7));
  CHECK(faults_from("").empty());
  CHECK_THROWS_WITH(faults_from("ncclSend"), ContainsSubstring("FUNCTION:KIND"));
  CHECK_THROWS_WITH(faults_from("ncclSend:dies"), ContainsSubstring("not 'dies'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:rank=one"), ContainsSubstring("'one'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:result=oops"), ContainsSubstring("'oops'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:lane=3"), ContainsSubstring("'lane=3'"));
}
