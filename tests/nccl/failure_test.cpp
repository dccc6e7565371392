// How ranks end when NCCL or one of them fails: all, with one cause, also if NCCL never returns.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "tests/dist/own_process.h"
#include "tests/nccl/fake/scripts.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;
using R = NcclResult;

TEST_CASE("NCCL that fails in a call ends every rank, each with the first cause, and all abort",
          "[nccl]") {
  const Ended ended = run({"", {{"ncclGroupEnd", K::fails_later, 1, 4, R::remote_error}}});
  for (const std::string& error : ended.errors) {
    CHECK_THAT(error, ContainsSubstring("rank 1 in all_reduce 'loss' of 7 f32 elements (call 3)"));
    CHECK_THAT(error, ContainsSubstring("ncclRemoteError"));
  }
  CHECK(ended.aborted == kRanks);
  CHECK(ended.destroyed == 0);
  CHECK_THAT(last_failure_report(), ContainsSubstring("communication failed: rank 1") &&
                                        ContainsSubstring("all_gather 'h.1 parameter'"));
  CHECK(run({""}).thrown == "");  // the process can begin again
}

TEST_CASE("NCCL: ranks that are inside it when another fails do not wait for their deadline",
          "[nccl]") {
  const bool lagging = GENERATE(false, true);
  for (const char* function :
       {"ncclGroupEnd", "ncclSend", "ncclCommFinalize", "ncclCommInitRankConfig"}) {
    CAPTURE(lagging, function);
    const Ended ended =
        run({.title = "", .faults = {{function, K::fails, 1}}, .lagging = lagging}, {});
    CHECK_THAT(ended.thrown, ContainsSubstring(str("rank 1 ")) && ContainsSubstring(function));
    CHECK(ended.took < 5s);
    CHECK(ended.misuse == "");
  }
}

TEST_CASE("an NCCL older than the one that the program was compiled for is refused at once",
          "[nccl]") {
  const Ended ended = run({""}, {.version = 21805});
  CHECK(ended.kind == Kind::input);
  CHECK_THAT(ended.thrown, ContainsSubstring("compiled for NCCL 2.28.9, and found 2.18.5") &&
                               ContainsSubstring("LD_LIBRARY_PATH"));
  CHECK(run({""}, {.version = 23203}).thrown == "");
}

TEST_CASE("a rank without its GPU ends all before NCCL is asked", "[nccl]") {
  FakeNccl fake;
  const NcclApi api = fake.api();
  const auto choose = [](int rank) { require(rank != 1, "there is no GPU 1"); };
  CHECK_THROWS_WITH(run_on_nccl(kRanks, [](Communicator&) {}, within(kTimeout),
                                {.api = &api, .choose_gpu = choose}),
                    "there is no GPU 1");
  CHECK(fake.calls("ncclCommInitRankConfig") == 0);
}

TEST_CASE("a build without NCCL says what to install", "[nccl]") {
  if (nccl_compiled_for()) SKIP("NCCL is in this build");
  CHECK_THROWS_WITH(nccl_transport({}, {}, {}),
                    ContainsSubstring("built without NCCL") && ContainsSubstring("libnccl-dev"));
}

namespace {

struct Hang {
  int rank;
  const char* function;
  std::vector<Fault> faults;
  bool lagging;
};

const Hang kHangs[] = {
    {1,
     "ncclCommAbort",
     {{"ncclGroupEnd", K::fails_later, 1, 3, R::remote_error}, {"ncclCommAbort", K::hangs, 1}},
     false},
    {1,
     "ncclCommAbort",  // on the watchdog's thread
     {{"ncclGroupEnd", K::stalls, 1, 5}, {"ncclCommAbort", K::hangs, 1}},
     true},
    {2, "ncclGroupEnd", {{"ncclGroupEnd", K::hangs, 2, 3}}, false},
    {2, "ncclGroupEnd", {{"ncclGroupEnd", K::hangs, 2, 3}}, true},  // beside a watchdog
    {1, "ncclCommInitRankConfig", {{"ncclCommInitRankConfig", K::hangs, 1}}, false}};

}  // namespace

// For the process that the next case starts: nothing but its end helps.
TEST_CASE("NCCL that hangs", "[.nccl-hangs]") {
  const Hang& hang = kHangs[std::atoi(std::getenv("ZEROLAB_HANG"))];
  FakeNccl fake(hang.faults);
  const NcclApi api = fake.api();
  run_on_nccl(kRanks,
              [&](Communicator& comm) {
                Rank rank(comm, {}, fake_backends(hang.lagging));
                program(rank, {});
              },
              {.timeout = 200ms, .grace = 500ms}, {.api = &api});
}

TEST_CASE(
    "a rank that hangs inside NCCL ends the process with exit code 4, and its report says where",
    "[nccl]") {
  for (size_t i = 0; i < std::size(kHangs); ++i) {
    const std::string end = end_of_case("[.nccl-hangs]", str("ZEROLAB_HANG=", i, " "));
    CAPTURE(i);
    CHECK_THAT(end, ContainsSubstring("exit code 4") &&
                        ContainsSubstring(str("rank ", kHangs[i].rank, ": communication failed")) &&
                        ContainsSubstring(str("it is in ", kHangs[i].function)));
    if (i == 0) CHECK_THAT(end, ContainsSubstring("ncclRemoteError"));
  }
}

// NCCL misbehaves in every way that is known of it; all ranks end in time, say who, where and what
// helps, and leak nothing.
TEST_CASE("NCCL scripts", "[nccl]") {
  for (const auto* scripts : {&scripts_of_joining(), &scripts_of_calls(), &scripts_of_ranks()})
    for (const Script& script : *scripts) DYNAMIC_SECTION(script.title) {
        const Ended ended = run(script);
        CAPTURE(ended.thrown);
        CHECK(ended.misuse == "");  // also says that every communicator was ended exactly once
        CHECK(ended.took <= kTimeout + 1s);
        if (script.says.empty()) {
          CHECK(ended.thrown == "");
          CHECK(ended.destroyed == kRanks);
          CHECK(ended.aborted == 0);
          continue;
        }
        CHECK(ended.kind == script.kind);
        for (const std::string& part : script.says)
          CHECK_THAT(ended.thrown, ContainsSubstring(part));
        for (const int64_t bytes : ended.live) CHECK(bytes == 0);
      }
}
