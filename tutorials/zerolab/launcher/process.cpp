#include "tutorials/zerolab/launcher/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "dist/mpi/library.h"

namespace zl::cli {
namespace {

// Runs in the new process, before its program. Only errno comes back, through `failure`.
[[noreturn]] void become(const ProcessPlan& plan, const std::vector<char*>& words, pid_t launcher,
                         int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  for (int i = 0; i < 3; ++i) dup2(plan.streams[size_t(i)], i);
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

// As exec wants them.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InputError(str("a process could not be started: no pipe: ", std::strerror(errno)));
  read = ends[0], write = ends[1];
}

pid_t start_process(const ProcessPlan& plan) {
  const std::vector<char*> words = pointers(plan.command);
  const Pipe failure;
  const pid_t launcher = getpid(), id = fork();
  if (id == 0) become(plan, words, launcher, failure.write);
  require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                "; see ulimit -u");
  setpgid(id, id);  // whichever of both comes first
  close(failure.write);
  int error = 0;  // nothing comes if the program runs, which closes the other side
  while (read(failure.read, &error, sizeof error) < 0 && errno == EINTR) {
  }
  close(failure.read);
  if (error == 0) return id;
  waitpid(id, nullptr, 0);
  const std::string text = str("'", plan.command[0], "' cannot be started: ", std::strerror(error));
  if (error == ENOENT) throw ProgramNotFound(text);
  throw InputError(text);
}

bool ended(pid_t id, int& status) {
  siginfo_t info = {};
  if (waitid(P_PID, id_t(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  kill(-id, SIGKILL);  // before waitpid(), which frees the number for other processes
  waitpid(id, &status, 0);
  return true;
}

void become_mpirun(int ranks, const std::vector<std::string>& program) {
  const MpiInBuild mpi = require_mpi();
  std::vector<std::string> words{mpi.mpirun, "-n", std::to_string(ranks)};
  if (mpi.open_mpi) words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  if (mpi.open_mpi && geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), program.begin(), program.end());
  execv(words[0].c_str(), pointers(words).data());
  throw InputError(str("this program was built with ", mpi.name(), ", whose mpirun (", mpi.mpirun,
                       ") cannot be started: ", std::strerror(errno),
                       ". Cure: install it, or build again with an MPI that is here"));
}

}  // namespace zl::cli
