#include "tutorials/zerolab/launcher/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "dist/mpi/mpi_transport.h"
#include "dist/processes/launch_environment.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBeforeKill = std::chrono::seconds(2);  // between SIGTERM and SIGKILL
constexpr size_t kMuch = size_t(1) << 20;              // [B] of a line, and of text to be written

// ---- a process ---------------------------------------------------------------------------------

// The ends to read from and to write to, for this process only. Throws InputError.
std::array<int, 2> new_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw InputError(str("a process could not be started: no pipe: ", std::strerror(errno)));
  return ends;
}

// As exec wants them.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// Runs in the new process, before its program. Only errno comes back, through `failure`.
[[noreturn]] void become(const std::vector<char*>& words, const std::array<int, 3>& streams,
                         pid_t launcher, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  for (int i = 0; i < 3; ++i) dup2(streams[size_t(i)], i);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);  // ignored by the launcher
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

// Returns the process when the program, a path or a name on PATH, runs, with no signal blocked or
// caught. `streams` become its stdin, stdout and stderr. Throws InputError if it cannot be started.
pid_t start_process(const std::vector<std::string>& command, const std::array<int, 3>& streams) {
  const std::vector<char*> words = pointers(command);
  const auto [failure, in_child] = new_pipe();
  const pid_t launcher = getpid(), id = fork();
  if (id == 0) become(words, streams, launcher, in_child);
  require_input(id > 0, "a process could not be started: ", std::strerror(errno),
                "; see ulimit -u");
  setpgid(id, id);  // whichever of both comes first
  close(in_child);
  int error = 0;  // nothing comes if the program runs, which closes the other side
  while (read(failure, &error, sizeof error) < 0 && errno == EINTR) {
  }
  close(failure);
  if (error == 0) return id;
  waitpid(id, nullptr, 0);
  throw InputError(str("'", command[0], "' cannot be started: ", std::strerror(error)));
}

// Whether the process has ended, and how, as waitpid() says it. If so, it is waited for, and the
// rest of its group is killed.
bool ended(pid_t id, int& status) {
  siginfo_t info = {};
  if (waitid(P_PID, id_t(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  kill(-id, SIGKILL);  // before waitpid(), which frees the number for other processes
  waitpid(id, &status, 0);
  return true;
}

// ---- the ranks ---------------------------------------------------------------------------------

std::string how(int status) {
  if (!WIFSIGNALED(status)) return str("exit code ", WEXITSTATUS(status));
  const char* const name = sigabbrev_np(WTERMSIG(status));
  return name ? str("SIG", name) : str("signal ", WTERMSIG(status));
}

std::string hint(int signal) {
  if (signal == SIGKILL) return " (out of memory? see dmesg)";
  if (signal == SIGBUS) return " (is /dev/shm full? see df /dev/shm)";
  return "";
}

// A failed communication: another rank's failure, if there is one, is its cause.
bool follows(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kCommunication; }

struct Rank {
  std::string name;
  pid_t id = 0;
  int output = -1;
  bool alive = true, ended_by_launch = false;
  int status = 0;
  double seconds = 0;
  std::string line = "";  // of its output, not complete yet
};

// What those that are left get, and when.
struct Next {
  Clock::time_point at;
  int signal;
};

class Ranks {
 public:
  Ranks(const LaunchPlan& plan, Terminal terminal) : plan_(plan), terminal_(terminal) {}
  Ranks(const Ranks&) = delete;
  ~Ranks() {  // kills ranks that still run
    signal_all(SIGKILL);
    for (Rank& rank : ranks_)
      while (rank.alive && !ended(rank.id, rank.status)) usleep(1000);
  }

  int run() {
    watch_signals();
    for (int r = 0; r < plan_.ranks; ++r) start(r);
    while (std::ranges::any_of(ranks_, &Rank::alive)) serve();
    for (Rank& rank : ranks_) {
      for (int piece = 0; rank.output >= 0 && piece < 16; ++piece)
        take_output(rank);      // more than a pipe holds
      take_text(rank, "\r\r");  // completes a line
    }
    if (cause_ && interrupts_ == 0) say(summary());
    const auto deadline = Clock::now() + kBeforeKill;  // if the reader of stderr does not read
    while (!text_.empty() && interrupts_ < 2 && (end_signal_ == 0 || Clock::now() < deadline))
      serve();
    return exit_code();
  }

 private:
  // From here on signals are read from a file descriptor, between two other events.
  void watch_signals() {
    signal(SIGCHLD, SIG_DFL);  // if it is ignored, ends of ranks are not reported
    signal(SIGTTOU, SIG_IGN);  // rank 0 writes to the terminal from its own process group
    sigset_t all;
    sigemptyset(&all);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&all, number);
    struct sigaction now = {};
    sigaction(SIGHUP, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&all, SIGHUP);  // nohup
    sigprocmask(SIG_BLOCK, &all, nullptr);
    signals_ = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    require_input(signals_ >= 0, "signals cannot be read: ", std::strerror(errno));
  }

  void start(int number) {
    const std::string rank = std::to_string(number), size = std::to_string(plan_.ranks);
    const auto [output, pipe] = new_pipe();
    fcntl(output, F_SETFL, O_NONBLOCK);
    std::map<std::string, std::string> variables{{"RANK", rank},
                                                 {"WORLD_SIZE", size},
                                                 {"LOCAL_RANK", rank},
                                                 {"LOCAL_WORLD_SIZE", size},
                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                 {"ZEROLAB_PORT", std::to_string(plan_.port)},
                                                 {"ZEROLAB_RUN_ID", plan_.run}};
    if (plan_.share_gpu) variables.merge(shared_gpu_variables(number, std::getenv));
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    unsetenv("TORCHELASTIC_RUN_ID");  // this is not torchrun
    std::array<int, 3> streams{null_, pipe, pipe};
    if (number == 0) streams = {stdin_, 1, terminal_.rewrites ? 2 : pipe};
    ranks_.push_back({"rank " + rank, start_process(plan_.command, streams), output});
    close(pipe);
  }

  // On a terminal rank 0 may be rewriting a progress line: it is erased, and redrawn by rank 0.
  std::string erased_line() const { return terminal_.rewrites ? "\r\x1b[K" : ""; }

  // Waits for the next event, at most 100 ms, and handles it. Never blocks on a reader of stderr:
  // while much text is waiting for it, the ranks' output is not read.
  void serve() {
    std::vector<pollfd> files{{signals_, POLLIN, 0},
                              {text_.empty() ? -1 : STDERR_FILENO, POLLOUT, 0}};
    for (const Rank& rank : ranks_)
      files.push_back({text_.size() > kMuch ? -1 : rank.output, POLLIN, 0});
    poll(files.data(), files.size(), 100);  // [ms]
    if (files[1].revents != 0) write_some();
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (files[2 + r].revents != 0) take_output(ranks_[r]);
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == ssize_t(sizeof info))
      take_signal(int(info.ssi_signo));
    end_in_time();
  }

  // A pipe that poll() reports as writable takes PIPE_BUF bytes. If the reader is gone, the text is
  // dropped.
  void write_some() {
    const ssize_t n = write(STDERR_FILENO, text_.data(), std::min<size_t>(text_.size(), PIPE_BUF));
    if (n > 0) text_.erase(0, size_t(n));
    if (n < 0 && errno != EINTR && errno != EAGAIN) text_.clear();
  }

  void take_output(Rank& rank) {
    std::array<char, 65536> bytes;
    const ssize_t n = read(rank.output, bytes.data(), bytes.size());
    take_text(rank, std::string_view(bytes.data(), size_t(std::max<ssize_t>(n, 0))));
    if (n == 0) close(std::exchange(rank.output, -1));
  }

  // Passes complete lines on, with a prefix. A line feed or a carriage return ends a line, so that
  // each state of a progress bar becomes a line. Lines of 1 MiB and more are cut.
  void take_text(Rank& rank, std::string_view text) {
    for (const char c : text) {
      const bool ends = c == '\n', state = !ends && rank.line.ends_with('\r');
      if (state) rank.line.pop_back();
      if (ends || (state && !rank.line.empty()) || rank.line.size() >= kMuch) {
        text_ += erased_line() + terminal_.dim("[" + rank.name + "]") + " " + rank.line + '\n';
        rank.line.clear();
      }
      if (!ends) rank.line += c;
    }
  }

  void take_signal(int number) {
    if (number == SIGCHLD) return take_ends();
    if (number == SIGINT) {  // the terminal does not send it to other process groups
      if (next_ && next_->signal == SIGTERM) next_.reset();
      signal_all(++interrupts_ == 1 ? SIGINT : SIGKILL);
      return signal_all(SIGCONT);  // a stopped process handles it only when it continues
    }
    if (std::exchange(end_signal_, number) == 0) terminate(plan_.grace);
  }

  void terminate(Clock::duration before_kill) {
    signal_all(SIGTERM);
    signal_all(SIGCONT);
    next_ = Next{Clock::now() + before_kill, SIGKILL};
  }

  void take_ends() {
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].alive && ended(ranks_[r].id, ranks_[r].status)) take_end(r);
  }

  void take_end(size_t number) {
    Rank& rank = ranks_[number];
    rank.alive = false;
    rank.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (interrupts_ > 0 && !next_) next_ = Next{Clock::now() + plan_.grace, SIGKILL};
    if (rank.status == 0 || rank.ended_by_launch || interrupts_ > 0 || end_signal_ != 0) return;
    if (WIFSIGNALED(rank.status))
      say(str(rank.name, " was killed by ", how(rank.status), hint(WTERMSIG(rank.status))));
    if (!cause_ || (follows(ranks_[*cause_].status) && !follows(rank.status))) cause_ = number;
    if (!next_) next_ = Next{Clock::now() + plan_.grace, SIGTERM};
  }

  void end_in_time() {
    if (!next_ || Clock::now() < next_->at) return;
    if (std::exchange(next_, {})->signal == SIGKILL) return signal_all(SIGKILL);
    for (Rank& rank : ranks_) rank.ended_by_launch = rank.alive;
    terminate(kBeforeKill);
  }

  void signal_all(int number) {
    for (const Rank& rank : ranks_)
      if (rank.alive && kill(-rank.id, number) != 0) kill(rank.id, number);  // it has another group
  }

  void say(const std::string& sentence) {
    text_ += erased_line() + terminal_.bold("[launch]") + " " + sentence + "\n";
  }

  // "rank 2 failed with exit code 3 after 1.2 s; ranks 0 1: exit code 4; rank 3: ended by launch".
  std::string summary() const {
    const Rank& cause = ranks_[*cause_];
    std::string text = str(cause.name, " failed with ", how(cause.status), " after ",
                           format("%.1f", cause.seconds), " s");
    std::map<std::string, std::string> ends;  // the ranks that have each end, by its text
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (r != *cause_)
        ends[ranks_[r].ended_by_launch ? "ended by launch" : how(ranks_[r].status)] += str(" ", r);
    for (const auto& [end, ranks] : ends)
      text += (ranks.find(' ', 1) == std::string::npos ? "; rank" : "; ranks") + ranks + ": " + end;
    return text;
  }

  int exit_code() const {
    if (interrupts_ > 0) return 128 + SIGINT;
    if (end_signal_ != 0) return 128 + end_signal_;
    if (!cause_) return kFine;
    const int status = ranks_[*cause_].status;
    return WIFSIGNALED(status) ? int(kCommunication) : WEXITSTATUS(status);
  }

  const LaunchPlan& plan_;
  const Terminal terminal_;
  const int null_ = open("/dev/null", O_RDWR | O_CLOEXEC);
  // Of rank 0. A rank leads its own process group, which a terminal stops if it reads from it.
  const int stdin_ = isatty(STDIN_FILENO) ? null_ : STDIN_FILENO;
  std::vector<Rank> ranks_;
  std::string text_;  // to be written to stderr
  const Clock::time_point begin_ = Clock::now();
  int signals_ = -1;             // file descriptor from which signals are read
  std::optional<size_t> cause_;  // the rank whose failure decides the exit code
  int interrupts_ = 0;           // number of Ctrl-C
  int end_signal_ = 0;           // SIGTERM or SIGHUP, if one came
  std::optional<Next> next_;
};

}  // namespace

int run_launched_ranks(const LaunchPlan& plan, Terminal terminal) {
  return Ranks(plan, terminal).run();
}

void become_mpirun(const LaunchPlan& plan) {
  const MpiInBuild mpi = require_mpi();
  std::vector<std::string> words{mpi.mpirun, "-n", std::to_string(plan.ranks)};
  if (mpi.open_mpi)  // the ranks have time to save a checkpoint, and say themselves why they end
    words.insert(words.end(), {"-q", "--oversubscribe", "--bind-to", "none", "--mca",
                               "odls_base_sigkill_timeout",
                               str(std::chrono::ceil<std::chrono::seconds>(plan.grace).count())});
  if (mpi.open_mpi && geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), plan.command.begin(), plan.command.end());
  execv(words[0].c_str(), pointers(words).data());
  throw InputError(str("this program was built with ", mpi.name(), ", whose mpirun (", mpi.mpirun,
                       ") cannot be started: ", std::strerror(errno),
                       ". Cure: install it, or build again with an MPI that is here"));
}

}  // namespace zl::cli
