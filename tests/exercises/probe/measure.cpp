// The side of the tests' own exercise that runs the student's code. Its other checks try what the
// sandbox forbids, or do what a student's code could do to the process if the rules had a hole.
#include "tutorials/exercises/grader/measure.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "tests/exercises/probe/answer.h"
#include "tutorials/exercises/grader/heap_count.h"

namespace zl::exercises {
namespace {

// 0, or errno of a call that failed.
double error_of(long result) { return result < 0 ? errno : 0; }

// The same for a call that starts a process.
double error_of_process(long id) {
  if (id == 0) _exit(0);
  const double error = error_of(id);
  if (id > 0) waitpid(pid_t(id), nullptr, 0);
  return error;
}

std::map<std::string, double> errors() {
  std::map<std::string, double> all;
  const char *file = "/etc/passwd", *fresh = "/zerolab-probe";
  const pid_t grader = getppid();
  all["open"] = error_of(open(file, O_RDONLY));
  all["create"] = error_of(open(fresh, O_WRONLY | O_CREAT, 0600));
  all["unlink"] = error_of(unlinkat(AT_FDCWD, fresh, 0));
  all["openat2"] = error_of(syscall(SYS_openat2, AT_FDCWD, file, nullptr, 0));
  all["fork"] = error_of_process(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  all["clone with some flags"] = error_of_process(syscall(SYS_clone, CLONE_FILES, 0, 0, 0, 0));
  all["clone3"] = error_of_process(syscall(SYS_clone3, nullptr, 0));
  all["exec"] = error_of(execl("/bin/true", "true", nullptr));
  all["socket"] = error_of(socket(AF_INET, SOCK_STREAM, 0));
  all["kill the grader"] = error_of(kill(grader, 0));
  all["tgkill the grader"] = error_of(syscall(SYS_tgkill, grader, grader, 0));
  all["tgkill itself"] = error_of(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0));
  all["ptrace"] = error_of(ptrace(PTRACE_TRACEME, 0, 0, 0));
  all["setsid"] = error_of(setsid());
  all["memfd"] = error_of(memfd_create("x", 0));
  all["io_uring"] = error_of(syscall(SYS_io_uring_setup, 1, nullptr));
  all["write"] = error_of(write(STDERR_FILENO, "", 0));
  all["user"] = double(getuid());
  return all;
}

// The sum of numbers that threads computed.
double threads() {
  std::vector<double> results(3);
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < results.size(); ++r)
    ranks.emplace_back([&results, r] { results[r] = answer(double(r)); });
  for (std::thread& rank : ranks) rank.join();
  return results[0] + results[1] + results[2];
}

// [B] on the heap by kind of allocation.
std::map<std::string, double> heap() {
  const auto grown = [](auto allocate) {
    const int64_t before = heap_live();
    [[maybe_unused]] const auto kept = allocate();
    return double(heap_live() - before);
  };
  std::map<std::string, double> bytes;
  bytes["vector"] = grown([] { return std::vector<float>(1000); });
  bytes["aligned"] = grown([] {
    struct alignas(64) Line {
      float values[16];
    };
    return std::vector<Line>(100);
  });
  bytes["freed"] = grown([] { return std::vector<float>(1000).empty(); });
  bytes["another thread's"] = grown([] {
    std::thread([] { [[maybe_unused]] auto* leaked = new float[1000]; }).join();
    return 0;
  });
  return bytes;
}

// Ends the process, or goes on for ever.
void misbehave(const std::string& check) {
  if (check == "ends") _exit(0);
  if (check == "sends something else") {
    (void)!write(3, "all checks passed", 17);
    _exit(0);
  }
  if (check == "sends a record") {
    Record record;
    record.numbers["answer"] = {42};
    const std::string bytes = encode(record, 0);
    for (int file = 3; file < 1024; ++file) (void)!write(file, bytes.data(), bytes.size());
    _exit(0);
  }
  while (check == "loops") answer(1);
  while (check == "prints") (void)!write(STDOUT_FILENO, "all checks passed\n", 18);
  if (check == "crashes after printing") {
    std::printf("x = 1\n");
    raise(SIGSEGV);
  }
  if (check == "divides by zero") raise(SIGFPE);
}

}  // namespace

Record measure(const std::string& check, const CheckOptions&) {
  Record record;
  const auto keep = [&](const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) record.numbers[name] = {value};
  };
  if (check == "answer") record.numbers["answer"] = {answer(21)};
  if (check == "threads") record.numbers["sum"] = {threads()};
  if (check == "errors") keep(errors());
  if (check == "heap") keep(heap());
  misbehave(check);
  return record;
}

}  // namespace zl::exercises
