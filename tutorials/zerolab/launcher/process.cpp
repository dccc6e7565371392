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

// For /bin/sh: $1 is the launcher's process, $2 the number of its pipes, which follow, and then the
// program. A rank knows its number from Open MPI or MPICH.
constexpr const char* kRedirect = R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
eval "pipe=/proc/$1/fd/\${$((rank + 3))}"
shift $(($2 + 2))
exec 2>"$pipe"
echo $$ >&2
[ "$rank" = 0 ] || exec >&2
exec "$@")";

}  // namespace

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InputError(str("a process could not be started: no pipe: ", std::strerror(errno)));
  read = ends[0], write = ends[1];
}

pid_t start_process(const ProcessPlan& plan) {
  std::vector<char*> words;
  for (const std::string& word : plan.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
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

std::vector<std::string> under_mpirun(const std::vector<std::string>& program,
                                      const std::vector<int>& pipes) {
  const MpiInBuild mpi = require_mpi();
  require_input(access(mpi.mpirun.c_str(), X_OK) == 0, "this program was built with ", mpi.name(),
                ", whose mpirun is not on this machine (", mpi.mpirun,
                "). Cure: install it, or build again with an MPI that is here");
  const std::string ranks = std::to_string(pipes.size());
  std::vector<std::string> words{mpi.mpirun, "-n", ranks};
  if (mpi.open_mpi) words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  if (mpi.open_mpi && geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"/bin/sh", "-c", kRedirect, "sh", std::to_string(getpid()), ranks});
  for (const int pipe : pipes) words.push_back(std::to_string(pipe));
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

}  // namespace zl::cli
