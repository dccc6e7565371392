// How ranks end when NCCL or one of them fails: all, with one cause, also if NCCL never returns.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

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
        run({.title = "", .faults = {{function, K::fails, 1}}, .lagging = lagging}, 22809, 20s);
    CHECK_THAT(ended.thrown, ContainsSubstring(str("rank 1 ")) && ContainsSubstring(function));
    CHECK(ended.took < 5s);
    CHECK(ended.misuse == "");
  }
}

TEST_CASE("an NCCL older than the one that the program was compiled for is refused at once",
          "[nccl]") {
  const Ended ended = run({""}, 21805);
  CHECK(ended.kind == Kind::input);
  CHECK_THAT(ended.thrown, ContainsSubstring("compiled for NCCL 2.28.9, and found 2.18.5") &&
                               ContainsSubstring("LD_LIBRARY_PATH"));
  CHECK(run({""}, 23203).thrown == "");
}

TEST_CASE("a rank without its GPU ends all before NCCL is asked", "[nccl]") {
  FakeNccl fake;
  const NcclApi api = fake.api();
  const auto choose = [](int rank) { require(rank != 1, "there is no GPU 1"); };
  CHECK_THROWS_WITH(run_nccl_ranks(kRanks, [](Communicator&) {}, within(kTimeout),
                                   {.api = &api, .choose_gpu = choose}),
                    "there is no GPU 1");
  CHECK(fake.calls("ncclCommInitRankConfig") == 0);
}

TEST_CASE("a build without NCCL says what to install", "[nccl]") {
  if (nccl_compiled_for()) SKIP("NCCL is in this build");
  CHECK_THROWS_WITH(run_nccl_ranks(1, [](Communicator&) {}),
                    ContainsSubstring("built without NCCL") && ContainsSubstring("libnccl-dev"));
}

namespace {

// For the process that the next case starts: the fake hangs, and nothing but the end of the process
// helps.
void hang(const std::vector<Fault>& faults, bool lagging = false) {
  FakeNccl fake(faults);
  const NcclApi api = fake.api();
  run_nccl_ranks(kRanks,
                 [&](Communicator& comm) {
                   Rank rank(comm, {}, fake_backends(lagging));
                   program(rank, {});
                 },
                 {.timeout = 200ms, .grace = 100ms}, {.api = &api});
}

}  // namespace

TEST_CASE("NCCL whose abort hangs", "[.nccl-hangs-in-abort]") {
  hang({{"ncclGroupEnd", K::fails_later, 1, 3, R::remote_error}, {"ncclCommAbort", K::hangs, 1}});
}
TEST_CASE("NCCL whose abort hangs on the watchdog's thread", "[.nccl-hangs-in-abort-of-watchdog]") {
  hang({{"ncclGroupEnd", K::stalls, 1, 5}, {"ncclCommAbort", K::hangs, 1}}, true);
}
TEST_CASE("NCCL that hangs in a call beside a watchdog", "[.nccl-hangs-beside-watchdog]") {
  hang({{"ncclGroupEnd", K::hangs, 2, 3}}, true);
}
TEST_CASE("NCCL that hangs in joining", "[.nccl-hangs-in-joining]") {
  hang({{"ncclCommInitRankConfig", K::hangs, 1}});
}
TEST_CASE("NCCL that hangs in a call", "[.nccl-hangs-in-a-call]") {
  hang({{"ncclGroupEnd", K::hangs, 2, 3}});
}

TEST_CASE(
    "a rank that hangs inside NCCL ends the process with exit code 4, and its report says where",
    "[nccl]") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto report = [&](const char* tag) {
    const std::string file =
        (std::filesystem::temp_directory_path() / str("zerolab-nccl-", getpid())).string();
    const int status = std::system(
        str("timeout 20 '", program, "' '", tag, "' >/dev/null 2>'", file, "'").c_str());
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    std::filesystem::remove(file);
    return str("exit code ", WIFEXITED(status) ? WEXITSTATUS(status) : -1, "\n", text.str());
  };
  CHECK_THAT(report("[.nccl-hangs-in-abort]"),
             ContainsSubstring("exit code 4") && ContainsSubstring("rank 1 is in ncclCommAbort") &&
                 ContainsSubstring("ncclRemoteError"));
  CHECK_THAT(
      report("[.nccl-hangs-in-joining]"),
      ContainsSubstring("exit code 4") && ContainsSubstring("rank 1 is in ncclCommInitRankConfig"));
  CHECK_THAT(report("[.nccl-hangs-in-a-call]"),
             ContainsSubstring("exit code 4") && ContainsSubstring("rank 2 is in ncclGroupEnd"));
  CHECK_THAT(report("[.nccl-hangs-in-abort-of-watchdog]"),
             ContainsSubstring("exit code 4") && ContainsSubstring("rank 1 is in ncclCommAbort"));
  CHECK_THAT(report("[.nccl-hangs-beside-watchdog]"),
             ContainsSubstring("exit code 4") && ContainsSubstring("rank 2 is in ncclGroupEnd"));
}

// NCCL misbehaves in every way that is known of it; all ranks end in time, say who, where and what
// helps, and leak nothing.
namespace {

void check(const Script& script) {
  DYNAMIC_SECTION(script.title) {
    const Ended ended = run(script);
    CAPTURE(ended.thrown);
    CHECK(ended.misuse == "");  // also says that every communicator was ended exactly once
    CHECK(ended.took <= kTimeout + 1s);
    if (script.says.empty()) {
      CHECK(ended.thrown == "");
      CHECK(ended.destroyed == kRanks);
      CHECK(ended.aborted == 0);
      return;
    }
    CHECK(ended.kind == script.kind);
    for (const std::string& part : script.says) CHECK_THAT(ended.thrown, ContainsSubstring(part));
    for (const int64_t bytes : ended.live) CHECK(bytes == 0);
  }
}

}  // namespace

TEST_CASE("NCCL scripts: joining", "[nccl]") {
  for (const Script& script : scripts_of_joining()) check(script);
}

TEST_CASE("NCCL scripts: calls and leaving", "[nccl]") {
  for (const Script& script : scripts_of_calls()) check(script);
}

TEST_CASE("NCCL scripts: ranks that go wrong themselves", "[nccl]") {
  for (const Script& script : scripts_of_ranks()) check(script);
}
