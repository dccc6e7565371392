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
  // Appends what was written since the last call. False: nothing was.
  bool read_on(std::string& text) const {
    char buffer[65536];
    const size_t before = text.size();
    for (ssize_t n; (n = pread(id, buffer, sizeof buffer, off_t(text.size()))) > 0;)
      text.append(buffer, size_t(n));
    return text.size() > before;
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
  std::vector<std::string> all = limits.environment;
  all.push_back("LANG=C");
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

struct Start {
  const std::vector<char*>&words, &variables;
  const ChildLimits& limits;
  int output, result, failure;
  pid_t parent;
  rlim_t threads;
};

// Runs in the new process, before its program. Only errno comes back, through `failure`.
[[noreturn]] void become(const Start& start) {
  setsid();
  if (dup2(open("/dev/null", O_RDONLY), STDIN_FILENO) < 0) _exit(127);
  dup2(start.output, STDOUT_FILENO);
  dup2(start.output, STDERR_FILENO);
  dup2(start.result, kResultFile);
  close_range(kResultFile + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, rlim_t(start.limits.file));
  if (start.limits.memory > 0) limit(RLIMIT_AS, rlim_t(start.limits.memory));
  if (start.limits.memory > 0) limit(RLIMIT_STACK, 8 << 20);  // [B] of each thread
  if (start.limits.student) limit(RLIMIT_NPROC, start.threads + kThreads);
  const bool ready =
      !start.limits.student || getuid() != 0 ||
      (setgroups(0, nullptr) == 0 && setresgid(kUnprivileged, kUnprivileged, kUnprivileged) == 0 &&
       setresuid(kUnprivileged, kUnprivileged, kUnprivileged) == 0);
  prctl(PR_SET_PDEATHSIG, start.limits.student ? SIGKILL : SIGTERM);
  if (getppid() != start.parent) _exit(127);  // it died before the line above
  if (ready && (start.limits.folder.empty() || chdir(start.limits.folder.c_str()) == 0))
    execvpe(start.words[0], start.words.data(), start.variables.data());
  const int error = errno;
  (void)!write(start.failure, &error, sizeof error);
  _exit(127);
}

pid_t started(Start start) {
  int ends[2], error = 0;  // closed on both sides when the program runs
  require_input(pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
  start.failure = ends[1] = above_the_childs(ends[1]);
  const pid_t id = fork();
  if (id == 0) become(start);
  close(ends[1]);
  ssize_t n;
  while ((n = read(ends[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
  close(ends[0]);
  require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                "; see ulimit -u");
  if (n <= 0) return id;
  waitpid(id, nullptr, 0);
  throw InputError(str("'", start.words[0], "' cannot be started: ", std::strerror(error)));
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
  if (!student) kill(-id, SIGTERM);
  for (int i = 0; i < 1000 && !student && !has_ended(id, end); ++i)
    std::this_thread::sleep_for(10ms);
  kill(-id, SIGKILL);
  if (student) kill_descendants();
  waitpid(id, nullptr, 0);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command, const ChildLimits& limits) {
  if (limits.student) prctl(PR_SET_CHILD_SUBREAPER, 1);
  const MemoryFile output, result;
  const std::vector<std::string> variables = environment(limits);
  const std::vector<char*> words = pointers(command), settings = pointers(variables);
  const auto begin = Clock::now();
  const pid_t id =
      started({words, settings, limits, output.id, result.id, -1, getpid(), threads_now()});
  ChildEnd end;
  while (!has_ended(id, end)) {
    if (limits.interrupted && limits.interrupted()) {
      stop(id, limits.student);
      throw Interrupted();
    }
    end.timed_out = Clock::now() - begin > limits.time;
    if (end.timed_out) break;
    std::this_thread::sleep_for(2ms);
    if (limits.on_output && output.read_on(end.output)) limits.on_output(end.output);
  }
  stop(id, limits.student);
  output.read_on(end.output);
  result.read_on(end.result);
  return end;
}

}  // namespace zl::exercises
