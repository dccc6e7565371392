#include "tutorials/exercises/grader/child_process.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "stages/train/trainer.h"
#include "tensor/error.h"

namespace zl::exercises {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uid_t kUnprivileged = 65534;
constexpr rlim_t kThreads = 256;  // of a student's processes together

// The same file, under a number that the child has no use for.
int above_the_childs(int file) {
  const int copy = fcntl(file, F_DUPFD_CLOEXEC, kResultFile + 1);
  close(file);
  return copy;
}

// A file in memory, without a name that another process could open.
class MemoryFile {
 public:
  MemoryFile() : id(above_the_childs(memfd_create("zerolab", MFD_CLOEXEC))) {
    require_input(id >= 0, "no file in memory: ", std::strerror(errno));
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { close(id); }
  std::string text() const {
    std::ifstream in(str("/proc/self/fd/", id), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const int id;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// What compilers, their cache, the loader and CUDA need; LANG=C, so that messages are the same.
std::vector<std::string> environment(const ChildLimits& limits) {
  std::vector<std::string> all = {"LANG=C"};
  if (!limits.folder.empty()) all.push_back("TMPDIR=" + limits.folder);
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CCACHE_DIR",
                           "CCACHE_CONFIGPATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
    if (const char* value = std::getenv(name)) all.push_back(std::string(name) + "=" + value);
  return all;
}

// Never above the limit that is there.
void limit(int resource, rlim_t value) {
  const auto which = __rlimit_resource_t(resource);
  rlimit now{};
  getrlimit(which, &now);
  now.rlim_cur = now.rlim_max = std::min(value, now.rlim_max);
  setrlimit(which, &now);
}

// Threads of this machine, which are at least as many as those of any user.
rlim_t threads_now() {
  std::ifstream in("/proc/loadavg");  // "0.2 0.3 0.1 2/345 6789"
  std::string word;
  std::getline(in, word, '/');
  return in >> word ? rlim_t(std::strtoul(word.c_str(), nullptr, 10)) : 0;
}

struct Files {
  MemoryFile output, result, failure;
};

// Runs in the new process, before its program. Only a failure's text comes back.
[[noreturn]] void become(char* const* words, char* const* variables, const ChildLimits& limits,
                         const Files& files, pid_t parent, rlim_t threads) {
  if (!limits.terminal) {
    setsid();
    if (dup2(open("/dev/null", O_RDONLY), STDIN_FILENO) < 0) _exit(127);
    dup2(files.output.id, STDOUT_FILENO);
    dup2(files.output.id, STDERR_FILENO);
  }
  dup2(files.result.id, kResultFile);
  close_range(kResultFile + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, rlim_t(limits.file));
  if (limits.memory > 0) limit(RLIMIT_AS, rlim_t(limits.memory));
  if (limits.memory > 0) limit(RLIMIT_STACK, 8 << 20);  // [B] of each thread
  if (limits.student) limit(RLIMIT_NPROC, threads + kThreads);
  const bool ready =
      !limits.student || getuid() != 0 ||
      (setgroups(0, nullptr) == 0 && setresgid(kUnprivileged, kUnprivileged, kUnprivileged) == 0 &&
       setresuid(kUnprivileged, kUnprivileged, kUnprivileged) == 0);
  prctl(PR_SET_PDEATHSIG, limits.student ? SIGKILL : SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  if (ready && (limits.folder.empty() || chdir(limits.folder.c_str()) == 0))
    execvpe(words[0], words, limits.terminal ? environ : variables);
  const char* const why = strerrordesc_np(errno);
  (void)!write(files.failure.id, why, std::strlen(why));
  _exit(127);
}

bool has_ended(pid_t id, ChildEnd& end) {
  siginfo_t info = {};
  if (waitid(P_PID, id_t(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  (info.si_code == CLD_EXITED ? end.code : end.signal) = info.si_status;
  return true;
}

// All processes that this one has started: the parent of each process is in /proc. Those whose
// parent has ended are this process's children.
std::set<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t id = pid_t(std::strtol(entry.path().filename().c_str(), nullptr, 10));
    std::string stat;  // "12 (its name) S 7 …"
    if (id > 0) std::getline(std::ifstream(entry.path() / "stat"), stat, '\0');
    const size_t end = stat.rfind(')');
    if (end != stat.npos) parents[id] = pid_t(std::strtol(stat.c_str() + end + 3, nullptr, 10));
  }
  std::set<pid_t> found = {getpid()};
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (const auto& [id, parent] : parents)
      if (found.contains(parent)) found.insert(id);
  }
  found.erase(getpid());
  return found;
}

// They may start others while the list is read: until there is none.
void kill_descendants() {
  for (const auto end = Clock::now() + 10s; Clock::now() < end;) {
    for (const pid_t id : descendants()) kill(id, SIGKILL);
    pid_t ended;
    while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) continue;
    if (ended < 0) return;
    std::this_thread::sleep_for(1ms);
  }
}

// SIGTERM lets a judge kill the student's program and all that it started, which may take seconds,
// and a compiler remove its files.
void stop(pid_t id, bool student) {
  ChildEnd end;
  for (int i = 0; i < 1000 && !student && !has_ended(id, end); ++i) {
    kill(-id, SIGTERM);  // again each time: it may not have come to its setsid() yet
    std::this_thread::sleep_for(10ms);
  }
  kill(-id, SIGKILL);
  if (student) kill_descendants();
  waitpid(id, nullptr, 0);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command, const ChildLimits& limits) {
  if (limits.student) prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Files files;
  const std::vector<std::string> variables = environment(limits);
  const std::vector<char*> words = pointers(command), settings = pointers(variables);
  const auto begin = Clock::now();
  const rlim_t threads = threads_now();
  const pid_t parent = getpid(), id = fork();
  if (id == 0) become(words.data(), settings.data(), limits, files, parent, threads);
  require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                "; see ulimit -u");
  ChildEnd end;
  while (!has_ended(id, end)) {
    if (limits.interrupted && limits.interrupted()) {
      stop(id, limits.student);
      throw Interrupted();
    }
    end.timed_out = Clock::now() - begin > limits.time;
    if (end.timed_out) break;
    std::this_thread::sleep_for(2ms);
  }
  stop(id, limits.student);
  const std::string failure = files.failure.text();
  require_input(failure.empty(), "'", command[0], "' cannot be started: ", failure);
  end.output = files.output.text(), end.result = files.result.text();
  return end;
}

}  // namespace zl::exercises
