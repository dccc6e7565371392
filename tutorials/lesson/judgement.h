// The learner's number beside the true one.
#pragma once

#include <optional>
#include <string>

namespace zl::lesson {

// Asks for `key` on stdin: on stdout or, if that belongs to something else, on stderr. Asks again,
// up to three times, if the answer is no number. Empty if there is no answer: an empty line, or the
// end of stdin.
std::optional<double> ask(const std::string& key, bool on_stderr);

struct Judgement {
  bool right = false;
  std::string text;  // "you said 230,400: 4 times too much. Elements or bytes?"
};
Judgement judge(double said, double measured, double tolerance, int ranks);

}  // namespace zl::lesson
