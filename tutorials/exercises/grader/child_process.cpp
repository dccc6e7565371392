#include "tutorials/exercises/grader/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "stages/train/trainer.h"
#include "tensor/error.h"
#include "tutorials/exercises/grader/descendants.h"

namespace zl::exercises {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kResultLimit = 64 << 20;  // [B]
constexpr size_t kLargestInput = 4096;      // [B]

// Both ends are above the file descriptors that the child uses.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    require_input(pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
    read = fcntl(ends[0], F_DUPFD_CLOEXEC, kResultFile + 1);
    write = fcntl(ends[1], F_DUPFD_CLOEXEC, kResultFile + 1);
    ::close(ends[0]);
    ::close(ends[1]);
    fcntl(read, F_SETFL, O_NONBLOCK);
  }
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    close(read);
    close(write);
  }
  static void close(int& end) {
    if (end >= 0) ::close(std::exchange(end, -1));
  }
  int read = -1, write = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// What compilers, their cache, the loader and CUDA need; LANG=C, so that messages are the same.
// Temporary files go into `folder`, where the caller removes those of processes that were killed.
std::vector<std::string> environment(const std::string& folder) {
  std::vector<std::string> all = {"LANG=C"};
  if (!folder.empty()) all.push_back("TMPDIR=" + folder);
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CCACHE_DIR",
                           "CCACHE_CONFIGPATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
    if (const char* value = std::getenv(name)) all.push_back(std::string(name) + "=" + value);
  return all;
}

struct Start {
  const std::vector<char*>&words, &environment;
  pid_t parent;
  int input, output, result, failure;
  const ChildLimits& limits;
};

// A limit that is lower already stays.
void limit(int resource, rlim_t value) {
  rlimit now{};
  getrlimit(__rlimit_resource_t(resource), &now);
  now.rlim_cur = now.rlim_max = std::min(value, now.rlim_max);
  setrlimit(__rlimit_resource_t(resource), &now);
}

// Runs in the new process, before its program. Only errno comes back, through `failure`.
[[noreturn]] void become(const Start& start) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != start.parent) _exit(1);  // it died before the line above
  dup2(start.input, STDIN_FILENO);
  dup2(start.output, STDOUT_FILENO);
  dup2(start.output, STDERR_FILENO);
  dup2(start.result, kResultFile);
  close_range(kResultFile + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  if (start.limits.memory > 0) limit(RLIMIT_AS, rlim_t(start.limits.memory));
  if (start.limits.file > 0) limit(RLIMIT_FSIZE, rlim_t(start.limits.file));
  if (start.limits.folder.empty() || chdir(start.limits.folder.c_str()) == 0)
    execvpe(start.words[0], start.words.data(), start.environment.data());
  const int error = errno;
  (void)!write(start.failure, &error, sizeof error);
  _exit(127);
}

// Moves what is there into `text`; false at the end.
bool drain(int from, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t n = read(from, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), size_t(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

bool has_ended(pid_t id, ChildEnd& end) {
  siginfo_t info = {};
  if (waitid(P_PID, id_t(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  (info.si_code == CLD_EXITED ? end.code : end.signal) = info.si_status;
  return true;
}

// Reads both pipes while the child runs, and says how it ended.
class Watch {
 public:
  Watch(Pipe& output, Pipe& result, const ChildLimits& limits)
      : output_(output), result_(result), limits_(limits) {}

  void run(pid_t id, const std::function<bool()>& interrupted) {
    while (!has_ended(id, end_)) {
      if (interrupted && interrupted()) throw Interrupted();
      end_.timed_out = seconds() > limits_.time.count();
      if (end_.timed_out || end_.too_much_output) return;
      read_for(20);
    }
  }
  // After all processes ended that could write.
  ChildEnd take() {
    end_.seconds = seconds();
    while (output_.read >= 0 || result_.read >= 0) {
      if (!read_for(0)) break;
    }
    return std::move(end_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Whether anything came.
  bool read_for(int milliseconds) {
    std::array<pollfd, 2> ends{pollfd{output_.read, POLLIN, 0}, pollfd{result_.read, POLLIN, 0}};
    if (poll(ends.data(), ends.size(), milliseconds) <= 0) return false;
    std::string text;
    if (ends[0].revents != 0 && !drain(output_.read, text)) Pipe::close(output_.read);
    if (ends[1].revents != 0 && !drain(result_.read, end_.result)) Pipe::close(result_.read);
    written_ += int64_t(text.size());
    end_.output += text.substr(0, size_t(limits_.kept_output) - end_.output.size());
    end_.too_much_output = written_ > limits_.output || int64_t(end_.result.size()) > kResultLimit;
    return !end_.too_much_output;
  }

  Pipe &output_, &result_;
  const ChildLimits& limits_;
  const Clock::time_point begin_ = Clock::now();
  ChildEnd end_;
  int64_t written_ = 0;  // [B]
};

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command, const ChildLimits& limits,
                   const std::function<bool()>& interrupted) {
  Pipe input, output, result, failure;
  require(limits.input.size() <= kLargestInput, "the input of a process is too long");
  (void)!write(input.write, limits.input.data(), limits.input.size());  // a pipe holds as much
  Pipe::close(input.write);
  const std::vector<std::string> variables = environment(limits.folder);
  const std::vector<char*> words = pointers(command), settings = pointers(variables);
  const Start start{words,        settings,     getpid(),      input.read,
                    output.write, result.write, failure.write, limits};
  Watch watch(output, result, limits);
  {
    const DescendantGuard child([&] {
      const pid_t id = fork();
      if (id == 0) become(start);
      require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                    "; see ulimit -u");
      return id;
    });
    for (Pipe* pipe : {&output, &result, &failure}) Pipe::close(pipe->write);
    fcntl(failure.read, F_SETFL, 0);
    int error = 0;
    // Ends when the program runs, which closes the other side.
    const ssize_t n = read(failure.read, &error, sizeof error);
    require_input(n <= 0, "'", command[0], "' cannot be started: ", std::strerror(error));
    watch.run(child.id(), interrupted);
  }
  return watch.take();
}

}  // namespace zl::exercises
