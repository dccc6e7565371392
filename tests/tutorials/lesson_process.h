// Runs a built lesson as a learner would: as a process, with or without a terminal.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/zerolab/process.h"

namespace tutorials {

// "05_ddp" and so on: every tutorials/NN_name.cpp of the source tree.
std::vector<std::string> lesson_names();

// A lesson with these arguments, as a shell writes them, and `answers` on its stdin.
cli::Finished run_lesson(const std::string& name, const std::string& arguments,
                         const std::string& answers = "");
// The document of --json, as text: no header includes nlohmann-json.
std::string lesson_document(const std::string& name, const std::string& arguments);
// The measured number of a key in it. Throws if there is none.
double measured_number(const std::string& document, const std::string& key);
int64_t measured(const std::string& document, const std::string& key);  // rounded

// Runs a lesson, whose own checks must hold, and compares some of its numbers.
void check_numbers(const std::string& lesson, const std::string& arguments,
                   const std::map<std::string, int64_t>& expected);

// [n] Padded sizes of model M, from the list of its parameters: each begins at a multiple of 16,
// each unit is a multiple of 16 N.
struct Layout {
  int64_t N, L, root, block;
  int64_t all() const { return root + L * block; }
  int64_t once(int64_t elements) const {
    return 4 * elements / N * (N - 1);
  }  // [B] sent by a rank for one pass
};
int64_t up(int64_t n, int64_t multiple);
Layout layout(int64_t ranks, int64_t layers = 2);

// A lesson whose stdin, stdout and stderr are a pseudo-terminal of 80 columns and 24 lines. Without
// `colors` NO_COLOR is set. The destructor ends the process.
class LessonOnTerminal {
 public:
  LessonOnTerminal(const std::string& name, const std::vector<std::string>& arguments,
                   bool colors = false);
  ~LessonOnTerminal();
  LessonOnTerminal(const LessonOnTerminal&) = delete;
  LessonOnTerminal& operator=(const LessonOnTerminal&) = delete;

  // Returns its output since the last call as soon as that contains `text`. Fails the test after 10
  // seconds.
  std::string until(const std::string& text);
  void press(const std::string& keys);
  // Returns its output since the last call of until(), and its exit code; 128 + the number of the
  // signal that ended it.
  std::pair<std::string, int> end();
  bool is_cooked() const;  // the terminal echoes and reads lines, as a shell expects

 private:
  bool read_more(double seconds);

  int master_ = -1;
  pid_t process_ = -1;
  std::string unread_;
};

}  // namespace tutorials
