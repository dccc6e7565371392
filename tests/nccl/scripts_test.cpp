// NCCL misbehaves in every way that is known of it; all ranks end in time, say who, where and what
// helps, and leak nothing.
#include "tests/nccl/fake/scripts.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

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
