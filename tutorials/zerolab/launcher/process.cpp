#include "tutorials/zerolab/launcher/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tensor/error.h"

namespace zl::cli {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw InputError(str("a process could not be started: no pipe: ", std::strerror(errno)));
    read = ends[0];
    write = ends[1];
  }
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    if (read >= 0) close(read);
    if (write >= 0) close(write);
  }
  int take_read() { return std::exchange(read, -1); }
  void close_write() { close(std::exchange(write, -1)); }
};

// Runs in the new process, before its program. Only errno comes back, through `failure`.
[[noreturn]] void become(const ProcessPlan& plan, const std::vector<char*>& words, pid_t launcher,
                         int output, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (!plan.keeps_stdin) dup2(nothing, STDIN_FILENO);
  if (!plan.keeps_stdout) dup2(output, STDOUT_FILENO);
  if (!plan.keeps_stderr) dup2(output, STDERR_FILENO);
  for (const auto& [name, value] : plan.environment)
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);  // ignored by the launcher
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

}  // namespace

StartedProcess start_process(const ProcessPlan& plan) {
  Pipe output, failure;
  std::vector<char*> words;
  for (const std::string& word : plan.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t launcher = getpid(), id = fork();
  if (id == 0) become(plan, words, launcher, output.write, failure.write);
  require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                "; see ulimit -u");
  setpgid(id, id);  // whichever of both comes first
  failure.close_write();
  int error = 0;
  ssize_t n = 0;
  do
    n = read(failure.read, &error,
             sizeof error);  // ends when the program runs, which closes the other side
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    waitpid(id, nullptr, 0);
    const std::string text =
        str("'", plan.command[0], "' cannot be started: ", std::strerror(error));
    if (error == ENOENT) throw ProgramNotFound(text);
    throw InputError(text);
  }
  fcntl(output.read, F_SETFL, O_NONBLOCK);
  return {id, output.take_read()};
}

void send_signal(pid_t id, int signal) {
  if (kill(-id, signal) != 0) kill(id, signal);  // it may have left its group
}

bool ended(pid_t id, ProcessEnd& end) {
  siginfo_t info = {};
  if (waitid(P_PID, id_t(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  kill(-id, SIGKILL);  // before waitpid(), which frees the number for other processes
  waitpid(id, nullptr, 0);
  if (info.si_code == CLD_EXITED)
    end.code = info.si_status;
  else
    end.signal = info.si_status;
  return true;
}

bool wants_terminal(pid_t id) {
  siginfo_t info = {};
  return waitid(P_PID, id_t(id), &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0 &&
         info.si_status == SIGTTIN;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? std::string("SIG") + name : str("signal ", signal);
}

}  // namespace zl::cli
