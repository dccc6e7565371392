#include "tutorials/zerolab/launcher/launched_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tensor/error.h"

namespace zl::cli {
namespace {

constexpr auto kBeforeKill = std::chrono::seconds(2);  // between SIGTERM and SIGKILL
constexpr int kCommunication = 4;                      // exit code, also of a death by a signal

std::string how(const ProcessEnd& end) {
  return end.signal ? signal_name(end.signal) : str("exit code ", end.code);
}

std::string hint(int signal) {
  if (signal == SIGKILL) return " (out of memory? see dmesg)";
  if (signal == SIGBUS) return " (is /dev/shm full? see df /dev/shm)";
  return "";
}

// Another rank's failure explains it, if there is one.
bool follows(const ProcessEnd& end) { return end.signal == 0 && end.code == kCommunication; }

}  // namespace

LaunchedRanks::LaunchedRanks(LaunchPlan plan, Terminal terminal)
    : plan_(std::move(plan)), terminal_(terminal), err_(STDERR_FILENO) {}

LaunchedRanks::~LaunchedRanks() {
  signal_all(SIGKILL);
  for (Rank& rank : ranks_) {
    while (rank.alive && !ended(rank.id, rank.end)) usleep(1000);
    if (rank.output >= 0) close(rank.output);
  }
  if (signals_ >= 0) close(signals_);
}

int LaunchedRanks::run() {
  watch_signals();
  for (int r = 0; r < plan_.ranks; ++r) start(r);
  while (alive() > 0) serve();
  for (Rank& rank : ranks_) {
    for (int piece = 0; rank.output >= 0 && piece < 16; ++piece)
      take_output(rank);  // more than a pipe holds
    rank.lines.end(err_.text());
  }
  if (cause_ && interrupts_ == 0) say(summary());
  const auto patience =
      Clock::now() + kBeforeKill;  // with one who does not read stderr, once this was told to end
  while (err_.waits() && interrupts_ < 2 && (told_to_end_ == 0 || Clock::now() < patience)) serve();
  return exit_code();
}

// From here on they are read from a file descriptor, so that each comes at a point where it can be
// dealt with.
void LaunchedRanks::watch_signals() {
  signal(SIGCHLD, SIG_DFL);  // ignored, ranks would end unnoticed
  signal(SIGTTOU, SIG_IGN);  // so that the terminal can be taken back
  sigset_t all;
  sigemptyset(&all);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGTSTP}) sigaddset(&all, number);
  struct sigaction now = {};
  sigaction(SIGHUP, nullptr, &now);
  if (now.sa_handler != SIG_IGN) sigaddset(&all, SIGHUP);  // nohup
  sigprocmask(SIG_BLOCK, &all, nullptr);
  signals_ = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  require_input(signals_ >= 0, "signals cannot be watched: ", std::strerror(errno));
}

void LaunchedRanks::start(int number) {
  const std::string rank = std::to_string(number), size = std::to_string(plan_.ranks);
  const bool first = number == 0;
  const StartedProcess started =
      start_process({.command = plan_.command,
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
                     .keeps_stderr = first && terminal_.rewrites});
  // On a terminal rank 0 may be writing a line over and over: it is wiped, and comes again with its
  // next state.
  const std::string prefix =
      (terminal_.rewrites ? "\r\x1b[K" : "") + terminal_.dim("[rank " + rank + "]") + " ";
  ranks_.push_back(
      {.id = started.id, .output = started.output, .alive = true, .lines = PrefixedLines(prefix)});
}

int LaunchedRanks::alive() const {
  return int(std::ranges::count_if(ranks_, [](const Rank& rank) { return rank.alive; }));
}

int LaunchedRanks::wait_ms() const {
  const auto& next = terminate_at_ ? terminate_at_ : kill_at_;
  if (alive() == 0 && told_to_end_ != 0) return 100;
  if (!next) return -1;
  return int(std::max<int64_t>(
      0, std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count()));
}

// Waits until something happens, and deals with it.
void LaunchedRanks::serve() {
  std::vector<pollfd> files{{signals_, POLLIN, 0}, {err_.waits() ? err_.to() : -1, POLLOUT, 0}};
  for (const Rank& rank : ranks_) files.push_back({err_.full() ? -1 : rank.output, POLLIN, 0});
  poll(files.data(), files.size(), wait_ms());
  if (files[1].revents != 0) err_.write_some();
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (files[2 + r].revents != 0) take_output(ranks_[r]);
  if (files[0].revents != 0) take_signals();
  end_in_time();
}

void LaunchedRanks::take_output(Rank& rank) {
  std::array<char, 65536> bytes;
  const ssize_t n = read(rank.output, bytes.data(), bytes.size());
  if (n > 0) rank.lines.take({bytes.data(), size_t(n)}, err_.text());
  if (n == 0) close(std::exchange(rank.output, -1));
}

void LaunchedRanks::take_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == ssize_t(sizeof info))
    take_signal(int(info.ssi_signo));
}

void LaunchedRanks::take_signal(int number) {
  if (number == SIGCHLD) return take_ends();
  if (number == SIGTSTP) return pause();
  if (number == SIGINT) {
    // The ranks have groups of their own, so this is the only one they get.
    signal_all(++interrupts_ == 1 ? SIGINT : SIGKILL);
    signal_all(SIGCONT);  // what is stopped hears it only when it goes on
    return;
  }
  if (std::exchange(told_to_end_, number) != 0) return;
  signal_all(SIGTERM);
  signal_all(SIGCONT);
  terminate_at_.reset();
  kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(plan_.grace);
}

// Ctrl-Z stops the ranks too.
void LaunchedRanks::pause() {
  signal_all(SIGSTOP);
  raise(SIGSTOP);
  signal_all(SIGCONT);
}

void LaunchedRanks::take_ends() {
  for (int r = 0; r < int(ranks_.size()); ++r)
    if (ranks_[size_t(r)].alive) take_end(r);
  if (!ranks_.empty() && ranks_[0].alive && wants_terminal(ranks_[0].id))
    give_terminal(ranks_[0].id);
}

void LaunchedRanks::take_end(int number) {
  Rank& rank = ranks_[size_t(number)];
  if (!ended(rank.id, rank.end)) return;
  rank.alive = false;
  rank.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (number == 0 && gave_terminal_) give_terminal(getpgrp());
  if (interrupts_ > 0 && !kill_at_)
    kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(plan_.grace);
  if (!rank.end.failed() || rank.ended_by_us || interrupts_ > 0 || told_to_end_ != 0) return;
  if (rank.end.signal != 0)
    say(str("rank ", number, " was killed by ", signal_name(rank.end.signal),
            hint(rank.end.signal)));
  if (!cause_ || (follows(ranks_[size_t(*cause_)].end) && !follows(rank.end))) cause_ = number;
  if (!terminate_at_ && !kill_at_)
    terminate_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(plan_.grace);
}

void LaunchedRanks::end_in_time() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_ && interrupts_ == 0) {
    for (Rank& rank : ranks_) rank.ended_by_us = rank.alive;
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // what is stopped ends only when it goes on
    kill_at_ = now + kBeforeKill;
  }
  if (terminate_at_ && now >= *terminate_at_) terminate_at_.reset();
  if (!kill_at_ || now < *kill_at_) return;
  signal_all(SIGKILL);
  kill_at_.reset();
}

void LaunchedRanks::signal_all(int number) {
  for (const Rank& rank : ranks_)
    if (rank.alive) send_signal(rank.id, number);
}

// A process that is not in the terminal's foreground is stopped when it reads from it. Rank 0 may
// read, so it gets there then; Ctrl-C reaches it alone from then on, and its end is a failure like
// any other.
void LaunchedRanks::give_terminal(pid_t group) {
  if (!gave_terminal_ && tcgetpgrp(STDIN_FILENO) != getpgrp())
    return;  // the launcher itself is in the background
  gave_terminal_ = tcsetpgrp(STDIN_FILENO, group) == 0 && group != getpgrp();
  if (gave_terminal_) send_signal(group, SIGCONT);
}

void LaunchedRanks::say(const std::string& sentence) {
  err_.text() +=
      (terminal_.rewrites ? "\r\x1b[K" : "") + terminal_.bold("[launch]") + " " + sentence + "\n";
}

// "rank 2 failed with exit code 3 after 1.2 s; ranks 0 1: exit code 4; rank 3: ended by launch".
std::string LaunchedRanks::summary() const {
  const Rank& cause = ranks_[size_t(*cause_)];
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", cause.seconds);
  std::vector<std::pair<std::string, std::vector<int>>> ends;
  for (int r = 0; r < plan_.ranks; ++r) {
    if (r == *cause_) continue;
    const Rank& rank = ranks_[size_t(r)];
    const std::string end = rank.ended_by_us ? "ended by launch" : how(rank.end);
    auto same = std::ranges::find(ends, end, [](const auto& e) { return e.first; });
    if (same == ends.end()) same = ends.insert(same, {end, {}});
    same->second.push_back(r);
  }
  std::string text =
      str("rank ", *cause_, " failed with ", how(cause.end), " after ", seconds, " s");
  for (const auto& [end, ranks] : ends) {
    text += ranks.size() == 1 ? "; rank" : "; ranks";
    for (const int r : ranks) text += str(" ", r);
    text += ": " + end;
  }
  return text;
}

int LaunchedRanks::exit_code() const {
  if (interrupts_ > 0) return 128 + SIGINT;
  if (told_to_end_ != 0) return 128 + told_to_end_;
  if (!cause_) return 0;
  const ProcessEnd& end = ranks_[size_t(*cause_)].end;
  if (end.signal == SIGINT) return 128 + SIGINT;  // rank 0 had the terminal
  return end.signal != 0 ? kCommunication : end.code;
}

}  // namespace zl::cli
