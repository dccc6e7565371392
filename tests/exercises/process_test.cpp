// The process that runs a student's code: its limits, that nothing of it stays, and what it cannot
// do, which the tests' own exercise tries.
#include "tests/zerolab/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cerrno>
#include <map>
#include <thread>

#include "stages/train/trainer.h"
#include "tests/exercises/grading.h"
#include "tutorials/exercises/grader/build.h"
#include "tutorials/exercises/grader/child_process.h"

namespace zl::exercises {
namespace {

using std::chrono::milliseconds;

ChildEnd shell(const std::string& line, const ChildLimits& limits = {}) {
  return run_child({"/bin/sh", "-c", line}, limits);
}

// The number in a file that a process writes as soon as it runs.
pid_t process_in(const std::string& file) {
  for (int tries = 0; tries < 500; ++tries) {
    const std::string text = cli::read_file(file);
    if (text.ends_with("\n")) return std::stoi(text);
    std::this_thread::sleep_for(milliseconds(10));
  }
  return 0;
}

// What the tests' own exercise measured in a check, on a right solution.
std::map<std::string, double> measured(const std::string& check, const std::string& device) {
  const cli::ScratchFolder folder;
  const std::string file = cli::write_file(
      folder / "answer.cpp",
      probe_file("namespace zl::exercises { double answer(double x) { return 2 * x; } }\n"));
  const BuiltProgram built = build(probe(), file, toolchain(), folder.path(), {});
  REQUIRE(built.refused.empty());
  const ChildEnd end = run_child({built.path, check, "0", device}, {.input = "the key."});
  CAPTURE(end.output, end.signal);
  REQUIRE(end.code == 0);
  std::map<std::string, double> values;
  const uint64_t key = 0x2e79656b20656874;  // "the key."
  const Record record = decode_record(end.result, key);
  for (const auto& [name, numbers] : record.numbers) values[name] = numbers.at(0);
  return values;
}

bool lives(pid_t id) { return kill(id, 0) == 0; }

}  // namespace

TEST_CASE("a child's code, output and result come back", "[exercises]") {
  const ChildEnd end = shell("echo out; echo err >&2; printf 'a\\0b' >&3; exit 7");
  CHECK(end.code == 7);
  CHECK(end.signal == 0);
  CHECK_FALSE(end.timed_out);
  CHECK_FALSE(end.too_much_output);
  CHECK(end.output == "out\nerr\n");
  CHECK(end.result == std::string("a\0b", 3));
  CHECK(shell("exit 0").result.empty());
  CHECK(shell("kill -SEGV $$").signal == SIGSEGV);
}

TEST_CASE("a result that is larger than a pipe arrives whole", "[exercises]") {
  const ChildEnd end = shell("head -c 3000000 /dev/zero >&3");
  CHECK(end.code == 0);
  CHECK(end.result == std::string(3'000'000, '\0'));
}

TEST_CASE("a child that runs too long is killed", "[exercises]") {
  for (const char* line : {"while :; do :; done", "sleep 100", "exec >&- 2>&- 3>&-; sleep 100"}) {
    const ChildEnd end = shell(line, {.time = milliseconds(200)});
    CHECK(end.timed_out);
    CHECK(end.seconds >= 0.2);
    CHECK(end.seconds < 10);
  }
  CHECK_FALSE(shell("sleep 0.1", {.time = milliseconds(5000)}).timed_out);
}

TEST_CASE("a child that prints without an end is killed", "[exercises]") {
  const ChildEnd end = shell("yes", {.output = 100'000, .kept_output = 10});
  CHECK(end.too_much_output);
  CHECK_FALSE(end.timed_out);
  CHECK(end.output == "y\ny\ny\ny\ny\n");
  CHECK(end.seconds < 10);
  CHECK(shell("yes >&3", {.time = milliseconds(60'000)}).too_much_output);
  const ChildEnd less = shell("yes | head -c 1000", {.output = 1000, .kept_output = 10});
  CHECK_FALSE(less.too_much_output);
  CHECK(less.code == 0);
}

TEST_CASE("no process of a child stays, also in another session and after its parent",
          "[exercises]") {
  const cli::ScratchFolder folder;
  const std::string file = folder / "id";
  // The second sleep is the child of a process that has ended.
  const std::string starts = "(setsid sh -c 'echo $$ >" + file + ".part; mv " + file + ".part " +
                             file + "; exec sleep 1000' &) ; ";
  SECTION("when the child ends") {
    const ChildEnd end = shell(starts + "while [ ! -e " + file + " ]; do sleep 0.01; done; exit 3");
    CHECK(end.code == 3);
    CHECK(end.seconds < 10);
  }
  SECTION("when its time is up") {
    CHECK(shell(starts + "sleep 1000", {.time = milliseconds(1000)}).timed_out);
  }
  const pid_t daemon = process_in(file);
  REQUIRE(daemon > 0);
  CHECK_FALSE(lives(daemon));
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // and none is left to be waited for
}

TEST_CASE("two threads run children, and neither kills those of the other", "[exercises]") {
  const auto run_many = [](int& bad) {
    for (int k = 0; k < 20; ++k) {
      const ChildEnd end = shell("(setsid sleep 1000 &); sleep 0.02; echo done; exit 5");
      if (end.code != 5 || end.output != "done\n") ++bad;
    }
  };
  int bad[2] = {0, 0};
  std::thread other([&] { run_many(bad[1]); });
  run_many(bad[0]);
  other.join();
  CHECK(bad[0] == 0);
  CHECK(bad[1] == 0);
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a process that was there before the child is not touched", "[exercises]") {
  const pid_t own = fork();
  if (own == 0) {
    execlp("sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  int was = 0, is = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &was);
  CHECK(shell("sleep 0.1; exit 4").code == 4);
  prctl(PR_GET_CHILD_SUBREAPER, &is);
  CHECK(is == was);
  CHECK(waitpid(own, nullptr, WNOHANG) == 0);  // it runs
  kill(own, SIGKILL);
  CHECK(waitpid(own, nullptr, 0) == own);
}

TEST_CASE("an interruption ends a child at once", "[exercises]") {
  const auto begin = std::chrono::steady_clock::now();
  const auto later = [&] { return std::chrono::steady_clock::now() - begin > milliseconds(100); };
  CHECK_THROWS_AS(run_child({"sleep", "100"}, {.time = std::chrono::seconds(60)}, later),
                  Interrupted);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a child gets no input, few variables and no files of the parent", "[exercises]") {
  const cli::ScratchFolder folder;
  FILE* file = std::fopen(cli::write_file(folder / "open", "text").c_str(), "r");  // no O_CLOEXEC
  setenv("ZEROLAB_SECRET", "1", 1);
  CHECK(shell("cat; echo ${ZEROLAB_SECRET:-none} $LANG").output == "none C\n");
  // ls has one more, of the folder that it reads.
  CHECK(shell("ls /proc/self/fd | wc -l").output == "5\n");
  CHECK(shell("pwd", {.folder = folder.path()}).output == folder.path() + "\n");
  CHECK(shell("ulimit -c; ulimit -v", {.memory = 1 << 30}).output == "0\n1048576\n");
  const ChildEnd wrote =
      shell("exec head -c 2000000 /dev/zero >x", {.file = 1 << 20, .folder = folder.path()});
  CHECK(wrote.signal == SIGXFSZ);
  CHECK(cli::read_file(folder / "x").size() == 1 << 20);
  unsetenv("ZEROLAB_SECRET");
  std::fclose(file);
}

TEST_CASE("a command that does not exist is named", "[exercises]") {
  CHECK_THROWS_WITH(run_child({"/no-such-program"}, {}),
                    "'/no-such-program' cannot be started: No such file or directory");
}

// With sanitizers it allows files, as for CUDA.
TEST_CASE("the sandbox forbids files, processes, connections and signals",
          "[exercises][unsanitized]") {
  const std::map<std::string, double> errors = measured("errors", "cpu");
  for (const char* call : {"open", "create", "openat2", "fork", "clone with some flags", "exec",
                           "socket", "kill the grader", "tgkill the grader", "ptrace", "unlink",
                           "setsid", "memfd", "io_uring"}) {
    CAPTURE(call);
    CHECK(errors.at(call) == EPERM);
  }
  CHECK(errors.at("clone3") == ENOSYS);
  CHECK(errors.at("tgkill itself") == 0);
  CHECK(errors.at("write") == 0);
  // In a container that has one user only, root stays root.
  const bool has_users = !cli::read_file("/proc/self/uid_map").ends_with(" 1\n");
  if (getuid() == 0 && has_users) CHECK(errors.at("user") == 65534);
}

TEST_CASE("the sandbox for CUDA allows files, and no processes or signals", "[exercises]") {
  const std::map<std::string, double> errors = measured("errors", "cuda");
  CHECK(errors.at("open") == 0);
  for (const char* call : {"fork", "clone with some flags", "exec", "socket", "kill the grader",
                           "tgkill the grader", "ptrace", "unlink", "setsid"}) {
    CAPTURE(call);
    CHECK(errors.at(call) == EPERM);
  }
  CHECK(errors.at("clone3") == ENOSYS);
}

TEST_CASE("threads start in the sandbox", "[exercises]") {
  CHECK(measured("threads", "cpu").at("sum") == 6);
  CHECK(measured("threads", "cuda").at("sum") == 6);
}

TEST_CASE("memory of vectors is counted, and that of aligned objects is not", "[exercises]") {
  const std::map<std::string, double> bytes = measured("heap", "cpu");
  CHECK(bytes.at("vector") >= 4000);
  CHECK(bytes.at("vector") < 4200);
  CHECK(bytes.at("aligned") == 0);
  CHECK(bytes.at("freed") == 0);
  CHECK(bytes.at("another thread's") < 100);  // std::thread itself allocates
}

}  // namespace zl::exercises
