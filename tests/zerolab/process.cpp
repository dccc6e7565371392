#include "tests/zerolab/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "tests/paths.h"

namespace cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Channel make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

// Moves what is there into `text`; false at the end. A terminal whose other side is closed gives an
// error instead.
bool drain(int from, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t n = read(from, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), size_t(n));
  return n > 0;
}

Finished run_command(const std::vector<std::string>& command, const Launch& launch) {
  const Channel out = make_pipe(), err = launch.terminal ? make_terminal(100, 25) : make_pipe();
  const auto begin = Clock::now();
  const int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::map<std::string, std::string> environment = launch.environment;
  if (!launch.gpus) environment.insert({"CUDA_VISIBLE_DEVICES", ""});
  const pid_t child = start(command, {none, out.write, err.write}, environment);
  close(none);
  close(out.write);
  close(err.write);
  Finished finished;
  std::array<pollfd, 2> ends{pollfd{out.read, POLLIN, 0}, pollfd{err.read, POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (!finished.timed_out && since(begin) > launch.timeout) {
      finished.timed_out = true;
      kill(child, SIGKILL);
    }
    poll(ends.data(), ends.size(), 50);
    if (ends[0].fd >= 0 && ends[0].revents != 0 && !drain(ends[0].fd, finished.out))
      ends[0].fd = -1;
    if (ends[1].fd < 0 || ends[1].revents == 0) continue;
    if (!drain(ends[1].fd, finished.err)) ends[1].fd = -1;
    if (launch.watch) launch.watch(child, finished.err);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(out.read);
  close(err.read);
  finished.code = exit_code(status);
  finished.seconds = since(begin);
  return finished;
}

}  // namespace

Channel make_terminal(int columns, int lines) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
    throw std::runtime_error("no pseudo-terminal");
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const winsize size{.ws_row = uint16_t(lines), .ws_col = uint16_t(columns)};
  ioctl(slave, TIOCSWINSZ, &size);
  return {master, slave};
}

pid_t start(const std::vector<std::string>& command, const std::array<int, 3>& streams,
            const std::map<std::string, std::string>& environment) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (isatty(streams[0])) {
    setsid();
    ioctl(streams[0], TIOCSCTTY, 0);  // so that Ctrl-C is a signal
  }
  for (int fd = 0; fd < 3; ++fd) dup2(streams[size_t(fd)], fd);
  for (const int number : {SIGINT, SIGPIPE}) signal(number, SIG_DFL);
  for (const char* variable : {"NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"}) unsetenv(variable);
  setenv("TERM", "xterm", 1);
  setenv("ZEROLAB", ZEROLAB_BINARY, 1);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Finished run(const Launch& launch) {
  std::vector<std::string> command{ZEROLAB_BINARY};
  command.insert(command.end(), launch.arguments.begin(), launch.arguments.end());
  return run_command(command, launch);
}

Finished zerolab(const std::vector<std::string>& arguments) {
  return run({.arguments = arguments});
}

Finished shell(const std::string& line, double timeout,
               const std::function<void(pid_t, const std::string&)>& watch) {
  return run_command({"/bin/sh", "-c", line}, {.timeout = timeout, .watch = watch});
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "zerolab-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cli
