// Child processes of a test: their ends are reported exactly, and none is left.
#include "tests/nccl/processes/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <stdexcept>
#include <thread>

using namespace zl::test;
using namespace std::chrono_literals;

namespace {

bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

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

TEST_CASE("a child that is late is killed, the others are not blamed", "[nccl]") {
  require_forks();
  const auto ends = run_processes(
      2,
      [](int child, const Processes::Say& say) {
        say("begun");
        if (child == 1) sleep_for_ever();
        return 0;
      },
      200ms);
  CHECK(ends[0].well());
  CHECK(ends[0].after < 200ms);
  CHECK(ends[1].overdue);
  CHECK(ends[1].signal == SIGKILL);
  CHECK(ends[1].said == "begun");
  CHECK(ends[1].after >= 200ms);
  CHECK(no_child_left());
}

TEST_CASE("a test sends its children signals when it likes", "[nccl]") {
  require_forks();
  Processes children(3, [](int, const Processes::Say&) -> int { sleep_for_ever(); });
  CHECK(!children.watch(30ms));
  children.signal(0, SIGSTOP);
  children.signal(1, SIGKILL);
  CHECK(!children.watch(50ms));  // a child that is stopped has not ended
  children.signal(0, SIGKILL);
  children.signal(2, SIGTERM);
  CHECK(children.watch(5s));
  children.signal(2, SIGKILL);  // too late, and no other process is hit
  const auto ends = children.wait(0ms);
  CHECK(ends[0].signal == SIGKILL);
  CHECK(ends[1].signal == SIGKILL);
  CHECK(ends[2].signal == SIGTERM);
  CHECK(ends[1].after >= 30ms);
  CHECK(ends[1].after <= ends[0].after);
  for (const ProcessEnd& end : ends) CHECK(!end.overdue);
  CHECK(no_child_left());
}

TEST_CASE("children that were not waited for end with their object, stopped ones too", "[nccl]") {
  require_forks();
  {
    Processes children(2, [](int, const Processes::Say&) -> int { sleep_for_ever(); });
    children.signal(1, SIGSTOP);
  }
  CHECK(no_child_left());
}

TEST_CASE("a child that says much is read while it works", "[nccl]") {
  require_forks();
  const std::string much(300'000, 'x');
  const auto ends = run_processes(
      1, [&](int, const Processes::Say& say) { return say(much), 0; }, 10s);
  CHECK(ends[0].well());
  CHECK(ends[0].said == much);
}
