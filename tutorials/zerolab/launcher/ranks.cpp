#include "tutorials/zerolab/launcher/ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "dist/processes/launch_environment.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/launcher/mpirun.h"
#include "tutorials/zerolab/launcher/process.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBeforeKill = std::chrono::seconds(2);  // between SIGTERM and SIGKILL
constexpr size_t kMuch = size_t(1) << 20;              // [B] of a line, and of text to be written

std::string how(const ProcessEnd& end) {
  return end.signal ? signal_name(end.signal) : str("exit code ", end.code);
}

std::string hint(int signal) {
  if (signal == SIGKILL) return " (out of memory? see dmesg)";
  if (signal == SIGBUS) return " (is /dev/shm full? see df /dev/shm)";
  return "";
}

// A failed communication: another rank's failure, if there is one, is its cause.
bool follows(const ProcessEnd& end) { return end.signal == 0 && end.code == kCommunication; }

// The output of one process as complete lines with a prefix. A line feed or a carriage return ends
// a line, so that each state of a progress bar becomes a line. Lines of 1 MiB and more are cut.
struct PrefixedLines {
  std::string prefix, line = "";
  bool returned = false;  // the last byte was a carriage return; with a line feed it ends one line
  bool cut = false;       // `line` continues one that was completed

  void complete(std::string& out) {
    out += prefix + line + '\n';
    line.clear();
  }
  // Appends the lines that `bytes` complete to `out`.
  void take(std::string_view bytes, std::string& out) {
    for (const char c : bytes) {
      if (std::exchange(returned, c == '\r')) {
        if (c == '\n')
          line += '\r';
        else if (!line.empty())
          complete(out);
      }
      if (c == '\r') continue;
      if (c != '\n') {
        line += c;
        if (line.size() < kMuch) continue;
        complete(out);
        cut = true;
      } else {
        if (!cut || !line.empty()) complete(out);
        cut = false;
      }
    }
  }
};

struct Rank {
  pid_t id = -1;
  int output = -1;
  bool alive = false, ended_by_launch = false;
  ProcessEnd end;
  double seconds = 0;
  PrefixedLines lines;
};

class Ranks {
 public:
  Ranks(const LaunchPlan& plan, Terminal terminal) : plan_(plan), terminal_(terminal) {}
  Ranks(const Ranks&) = delete;
  ~Ranks() {  // kills ranks that still run
    signal_all(SIGKILL);
    for (Rank& rank : ranks_) {
      while (rank.alive && !ended(rank.id, rank.end)) usleep(1000);
      if (rank.output >= 0) close(rank.output);
    }
    if (signals_ >= 0) close(signals_);
  }

  int run() {
    watch_signals();
    if (plan_.mpirun.empty())
      for (int r = 0; r < plan_.ranks; ++r) start(r);
    else
      start_by_mpirun();
    while (alive() > 0) serve();
    for (Rank& rank : ranks_) {
      for (int piece = 0; rank.output >= 0 && piece < 16; ++piece)
        take_output(rank);  // more than a pipe holds
      if (!rank.lines.line.empty()) rank.lines.complete(text_);
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
    signal(SIGTTOU, SIG_IGN);  // so that the terminal can be taken back
    sigset_t all;
    sigemptyset(&all);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGTSTP}) sigaddset(&all, number);
    struct sigaction now = {};
    sigaction(SIGHUP, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&all, SIGHUP);  // nohup
    sigprocmask(SIG_BLOCK, &all, nullptr);
    signals_ = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    require_input(signals_ >= 0, "signals cannot be read: ", std::strerror(errno));
  }

  void start(int number) {
    const std::string rank = std::to_string(number), size = std::to_string(plan_.ranks);
    const bool first = number == 0;
    ProcessPlan process{
        .command = plan_.command,
        .environment = {{"RANK", rank},
                        {"WORLD_SIZE", size},
                        {"LOCAL_RANK", rank},
                        {"LOCAL_WORLD_SIZE", size},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"ZEROLAB_PORT", std::to_string(plan_.port)},
                        {"ZEROLAB_RUN_ID", plan_.run},
                        {"TORCHELASTIC_RUN_ID", ""}},  // this launcher is not torchrun
        .keeps_stdin = first,
        .keeps_stdout = first,
        .keeps_stderr = first && terminal_.rewrites};
    if (plan_.share_gpu) process.environment.merge(shared_gpu_variables(number, std::getenv));
    const StartedProcess started = start_process(process);
    ranks_.push_back({.id = started.id,
                      .output = started.output,
                      .alive = true,
                      .lines = {prefix("rank " + rank)}});
  }

  // One process, mpirun, takes the place of the ranks. Its stdout is that of rank 0; of the ranks
  // there is only what they write.
  void start_by_mpirun() {
    pipes_ = std::make_unique<RankPipes>(plan_.ranks);
    std::vector<std::string> command = plan_.mpirun;
    const std::vector<std::string> program = pipes_->redirected(plan_.command);
    command.insert(command.end(), program.begin(), program.end());
    const StartedProcess started =
        start_process({.command = command,
                       .environment = {{"MASTER_ADDR", "127.0.0.1"},
                                       {"ZEROLAB_PORT", std::to_string(plan_.port)},
                                       {"ZEROLAB_RUN_ID", plan_.run}},
                       .keeps_stdin = true,
                       .keeps_stdout = true});
    ranks_.push_back(
        {.id = started.id, .output = started.output, .alive = true, .lines = {prefix("mpirun")}});
    for (const int output : pipes_->read_ends())
      ranks_.push_back({.output = output, .lines = {prefix(str("rank ", ranks_.size() - 1))}});
  }
  // The first of ranks_.
  int processes() const { return plan_.mpirun.empty() ? int(ranks_.size()) : 1; }

  std::string prefix(const std::string& who) const {
    return erased_line() + terminal_.dim("[" + who + "]") + " ";
  }

  // On a terminal rank 0 may be rewriting a progress line: it is erased, and redrawn by rank 0.
  std::string erased_line() const { return terminal_.rewrites ? "\r\x1b[K" : ""; }

  int alive() const { return int(std::ranges::count(ranks_, true, &Rank::alive)); }

  int wait_ms() const {
    const auto& next = terminate_at_ ? terminate_at_ : kill_at_;
    if (alive() == 0 && end_signal_ != 0) return 100;
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    return int(std::max<int64_t>(0, left.count()));
  }

  // Waits for the next event and handles it. Never blocks on a reader of stderr: while much text is
  // waiting for it, the ranks' output is not read.
  void serve() {
    std::vector<pollfd> files{{signals_, POLLIN, 0},
                              {text_.empty() ? -1 : STDERR_FILENO, POLLOUT, 0}};
    for (const Rank& rank : ranks_)
      files.push_back({text_.size() > kMuch ? -1 : rank.output, POLLIN, 0});
    poll(files.data(), files.size(), wait_ms());
    if (files[1].revents != 0) write_some();
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (files[2 + r].revents != 0) take_output(ranks_[r]);
    if (files[0].revents != 0) take_signals();
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
    if (n > 0) rank.lines.take({bytes.data(), size_t(n)}, text_);
    if (n == 0) close(std::exchange(rank.output, -1));
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == ssize_t(sizeof info))
      take_signal(int(info.ssi_signo));
  }

  void take_signal(int number) {
    if (number == SIGCHLD) return take_ends();
    if (number == SIGTSTP) {  // Ctrl-Z stops the ranks too
      signal_all(SIGSTOP);
      raise(SIGSTOP);
      return signal_all(SIGCONT);
    }
    if (number == SIGINT) {  // the terminal does not send it to other process groups
      signal_all(++interrupts_ == 1 ? SIGINT : SIGKILL);
      return signal_all(SIGCONT);  // a stopped process handles it only when it continues
    }
    if (std::exchange(end_signal_, number) == 0) terminate(grace());
  }

  Clock::duration grace() const { return std::chrono::duration_cast<Clock::duration>(plan_.grace); }

  void terminate(Clock::duration before_kill) {
    signal_all(SIGTERM);
    signal_all(SIGCONT);
    terminate_at_.reset();
    kill_at_ = Clock::now() + before_kill;
  }

  void take_ends() {
    for (int r = 0; r < processes(); ++r)
      if (ranks_[size_t(r)].alive) take_end(r);
    if (!ranks_.empty() && ranks_[0].alive && wants_terminal(ranks_[0].id))
      give_terminal(ranks_[0].id);
  }

  void take_end(int number) {
    Rank& rank = ranks_[size_t(number)];
    if (!ended(rank.id, rank.end)) return;
    rank.alive = false;
    rank.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (number == 0 && gave_terminal_) give_terminal(getpgrp());
    if (interrupts_ > 0 && !kill_at_) kill_at_ = Clock::now() + grace();
    const bool failed = rank.end.code != 0 || rank.end.signal != 0;
    if (!failed || rank.ended_by_launch || interrupts_ > 0 || end_signal_ != 0) return;
    if (rank.end.signal != 0)
      say(str(who(number), " was killed by ", signal_name(rank.end.signal), hint(rank.end.signal)));
    if (!cause_ || (follows(ranks_[size_t(*cause_)].end) && !follows(rank.end))) cause_ = number;
    if (!terminate_at_ && !kill_at_) terminate_at_ = Clock::now() + grace();
  }

  void end_in_time() {
    const auto now = Clock::now();
    if (terminate_at_ && now >= *terminate_at_) {
      terminate_at_.reset();
      if (interrupts_ == 0) {
        for (Rank& rank : ranks_) rank.ended_by_launch = rank.alive;
        terminate(kBeforeKill);
      }
    }
    if (!kill_at_ || now < *kill_at_) return;
    signal_all(SIGKILL);
    kill_at_.reset();
  }

  // mpirun would pass signals on late, or others; so its ranks get them directly.
  void signal_all(int number) {
    bool any = false;
    for (int r = 0; pipes_ && r + 1 < int(ranks_.size()); ++r) {
      const pid_t id = ranks_[size_t(r) + 1].output >= 0 ? pipes_->process(r) : 0;
      if (id > 0) any = kill(id, number) == 0 || any;
    }
    if (any && (number == SIGINT || number == SIGTERM || number == SIGHUP)) return;
    for (const Rank& rank : ranks_)
      if (rank.alive) send_signal(rank.id, number);
  }

  // A process in the background is stopped when it reads from the terminal. Rank 0 may read, so it
  // is brought to the foreground then. From then on Ctrl-C reaches rank 0 only, and its end is a
  // failure like any other.
  void give_terminal(pid_t group) {
    if (!gave_terminal_ && tcgetpgrp(STDIN_FILENO) != getpgrp())
      return;  // the launcher itself is in the background
    gave_terminal_ = tcsetpgrp(STDIN_FILENO, group) == 0 && group != getpgrp();
    if (gave_terminal_) send_signal(group, SIGCONT);
  }

  void say(const std::string& sentence) {
    text_ += erased_line() + terminal_.bold("[launch]") + " " + sentence + "\n";
  }

  // "rank 2 failed with exit code 3 after 1.2 s; ranks 0 1: exit code 4; rank 3: ended by launch".
  std::string summary() const {
    const Rank& cause = ranks_[size_t(*cause_)];
    std::string text = str(who(*cause_), " failed with ", how(cause.end), " after ",
                           format("%.1f", cause.seconds), " s");
    std::vector<std::pair<std::string, std::string>> ends;  // an end, and the ranks that have it
    for (int r = 0; r < processes(); ++r) {
      const Rank& rank = ranks_[size_t(r)];
      const std::string end = rank.ended_by_launch ? "ended by launch" : how(rank.end);
      auto same = std::ranges::find(ends, end, [](const auto& e) { return e.first; });
      if (r == *cause_) continue;
      if (same == ends.end()) same = ends.insert(same, {end, ""});
      same->second += str(" ", r);
    }
    for (const auto& [end, ranks] : ends)
      text += (ranks.find(' ', 1) == std::string::npos ? "; rank" : "; ranks") + ranks + ": " + end;
    return text;
  }

  std::string who(int process) const {
    return plan_.mpirun.empty() ? str("rank ", process) : "mpirun";
  }

  int exit_code() const {
    if (interrupts_ > 0) return 128 + SIGINT;
    if (end_signal_ != 0) return 128 + end_signal_;
    if (!cause_) return kFine;
    const ProcessEnd& end = ranks_[size_t(*cause_)].end;
    if (end.signal == SIGINT) return 128 + SIGINT;                     // rank 0 had the terminal
    const bool rank_killed = !plan_.mpirun.empty() && end.code > 128;  // by a signal
    return end.signal != 0 || rank_killed ? int(kCommunication) : end.code;
  }

  const LaunchPlan& plan_;
  const Terminal terminal_;
  std::vector<Rank> ranks_;
  std::unique_ptr<RankPipes> pipes_;  // of mpirun's ranks
  std::string text_;                  // to be written to stderr
  const Clock::time_point begin_ = Clock::now();
  int signals_ = -1;            // file descriptor from which signals are read
  bool gave_terminal_ = false;  // to rank 0, which reads from it
  std::optional<int> cause_;    // the rank whose failure decides the exit code
  int interrupts_ = 0;          // number of Ctrl-C
  int end_signal_ = 0;          // SIGTERM or SIGHUP, if one came
  std::optional<Clock::time_point> terminate_at_, kill_at_;
};

}  // namespace

int run_launched_ranks(const LaunchPlan& plan, Terminal terminal) {
  return Ranks(plan, terminal).run();
}

}  // namespace zl::cli
