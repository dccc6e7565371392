#include "tests/nccl/processes/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "tensor/error.h"

namespace zl::test {
namespace {

using Clock = std::chrono::steady_clock;

void write_all(int pipe, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(pipe, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return;
    done += size_t(std::max<ssize_t>(wrote, 0));
  }
}

[[noreturn]] void be_child(int child, int pipe, pid_t parent, const Processes::Body& body) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(Processes::kThrew);
  for (const int signal : {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGFPE, SIGILL})
    (void)std::signal(signal, SIG_DFL);  // not the test's
  const auto say = [pipe](const std::string& text) { write_all(pipe, text); };
  int code = Processes::kThrew;
  try {
    code = body(child, say);
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("threw what is no exception");
  }
  _exit(code);
}

}  // namespace

std::string describe(const ProcessEnd& end) {
  const std::string how = end.signal ? str("signal ", end.signal) : str("exit code ", end.code);
  return str(end.overdue ? "overdue, " : "", how, " after ", end.after.count(), " ms: ", end.said);
}

Processes::Processes(int count, const Body& body) : children_(size_t(count)) {
  const pid_t parent = getpid();
  for (int child = 0; child < count; ++child) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) be_child(child, ends[1], parent, body);
    close(ends[1]);  // before the next fork, so that its end is seen
    children_[size_t(child)] = {pid, ends[0]};
    if (pid < 0) {
      end_all();
      throw std::runtime_error("no process");
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
}

Processes::~Processes() { end_all(); }

void Processes::end_all() {
  for (Child& child : children_) {
    if (child.pid > 0 && !child.ended) {
      (void)kill(child.pid, SIGKILL);
      (void)waitpid(child.pid, nullptr, 0);
    }
    if (child.pipe >= 0) close(child.pipe);
  }
}

void Processes::signal(int child, int signal) {
  const Child& one = children_[size_t(child)];
  if (!one.ended) (void)kill(one.pid, signal);  // not reaped yet, so the number is still its own
}

void Processes::listen(Child& child) {
  char text[4096];
  for (ssize_t got = read(child.pipe, text, sizeof text); got > 0;
       got = read(child.pipe, text, sizeof text))
    child.end.said.append(text, size_t(got));
}

// Returns whether all have ended.
bool Processes::look() {
  for (Child& child : children_) {
    if (child.ended) continue;
    int status = 0;
    const bool ended = waitpid(child.pid, &status, WNOHANG) == child.pid;
    listen(child);  // after the question: what an ended child said is in the pipe
    if (!ended) continue;
    child.ended = true;
    if (WIFEXITED(status)) child.end.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child.end.signal = WTERMSIG(status);
    child.end.after = std::chrono::duration_cast<Milliseconds>(Clock::now() - began_);
  }
  return std::ranges::all_of(children_, &Child::ended);
}

bool Processes::watch(Milliseconds time) {
  for (const auto until = Clock::now() + time;;) {
    if (look()) return true;
    if (Clock::now() >= until) return false;
    (void)poll(nullptr, 0, 1);
  }
}

std::vector<ProcessEnd> Processes::wait(Milliseconds limit) {
  if (!watch(limit)) {
    for (Child& child : children_) {
      if (child.ended) continue;
      child.end.overdue = true;
      (void)kill(child.pid, SIGKILL);
    }
    while (!watch(Milliseconds(100))) {
    }
  }
  std::vector<ProcessEnd> ends;
  for (const Child& child : children_) ends.push_back(child.end);
  return ends;
}

std::vector<ProcessEnd> run_processes(int count, const Processes::Body& body,
                                      Processes::Milliseconds limit) {
  return Processes(count, body).wait(limit);
}

}  // namespace zl::test
