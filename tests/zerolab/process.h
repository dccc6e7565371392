// Runs the built zerolab as a user would: its own process, its exit code, what it wrote to stdout
// and to stderr.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cli {

struct Launch {
  std::vector<std::string> arguments;
  std::map<std::string, std::string>
      environment;  // beside TERM=xterm and without any variable about colour
  bool gpus =
      false;  // whether it sees the GPUs of this machine; without them it does the same everywhere
  bool terminal = false;  // stderr is a pseudo-terminal of 100 columns
  double timeout = 60;    // [s]; then the process is killed
  // Called with all of stderr so far whenever more of it has come; may send signals.
  std::function<void(pid_t process, const std::string& err)> watch;
};

struct Finished {
  int code = -1;  // as exit_code()
  bool timed_out = false;
  std::string out, err;
  double seconds = 0;
};

// Two ends of a pipe, or of a pseudo-terminal: the program writes to `write`, the test reads from
// `read`.
struct Channel {
  int read = -1, write = -1;
};
Channel make_terminal(int columns, int lines);
// A program, its arguments, and its stdin, stdout and stderr. A stdin that is a terminal controls
// it. `environment`: beside TERM=xterm, ZEROLAB, and no variable about colour.
pid_t start(const std::vector<std::string>& command, const std::array<int, 3>& streams,
            const std::map<std::string, std::string>& environment);
int exit_code(int status);  // of waitpid(): 128 + the signal's number if a signal ended it

Finished run(const Launch& launch);
// zerolab with these arguments.
Finished zerolab(const std::vector<std::string>& arguments);
// A line for /bin/sh, in which $ZEROLAB is the program. `timeout` [s], `watch`: as above.
Finished shell(const std::string& line, double timeout = 60,
               const std::function<void(pid_t, const std::string&)>& watch = {});

std::vector<std::string> lines(const std::string& text);
bool contains(const std::string& text, const std::string& part);

// A new folder that goes away with this object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
std::string write_file(const std::string& path, const std::string& content);  // returns the path
std::vector<std::string> files_in(const std::string& folder);                 // names, sorted

}  // namespace cli
