// Child processes of a test: their ends are reported exactly, and none is left.
#include "tests/nccl/processes/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <stdexcept>

using namespace zl::test;
using namespace std::chrono_literals;

namespace {

bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

}  // namespace

TEST_CASE("children of a test end as they say, and what they say arrives", "[nccl]") {
  require_forks();
  const auto ends = run_processes(
      4,
      [](int child, const Processes::Say& say) {
        say("child ");
        if (child == 2) throw std::runtime_error("has had enough");
        if (child == 3) std::abort();
        say(std::to_string(child));
        return child;
      },
      10s);
  CHECK(ends[0].well());
  CHECK(ends[0].said == "child 0");
  CHECK(ends[1].code == 1);
  CHECK(!ends[1].well());
  CHECK(ends[2].code == Processes::kThrew);
  CHECK(ends[2].said == "child has had enough");
  CHECK(ends[3].signal == SIGABRT);
  CHECK(ends[3].code == -1);
  CHECK(ends[3].said == "child ");
  for (const ProcessEnd& end : ends) CHECK(!end.overdue);
  CHECK(no_child_left());
}

TEST_CASE("a child that is stopped or late is killed, the others are not blamed", "[nccl]") {
  require_forks();
  {
    Processes children(3, [](int child, const Processes::Say& say) {
      say("begun");
      if (child == 1) ::raise(SIGSTOP);
      while (child > 0) pause();
      return 0;
    });
    CHECK(!children.watch(50ms));
    const auto ends = children.wait(100ms);
    CHECK(ends[0].well());
    for (const size_t late : {1, 2}) {
      CHECK(ends[late].overdue);
      CHECK(ends[late].signal == SIGKILL);
      CHECK(ends[late].said == "begun");
      CHECK(ends[late].after >= 100ms);
    }
    CHECK(no_child_left());
    const Processes not_waited_for(1, [](int, const Processes::Say&) { return pause(); });
  }
  CHECK(no_child_left());
}
