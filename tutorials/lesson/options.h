// The command line of a lesson: the flags of every lesson, and its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/lesson/prediction.h"

namespace zl::lesson {

// A flag that one lesson adds.
struct Flag {
  std::string name;      // "--layers"
  std::string argument;  // "L"; empty: a switch
  std::string help;
  int64_t value = 0;            // default
  int64_t least = 0, most = 0;  // range of the value
};

struct About {
  std::string name;               // "06_zero1", as the program
  std::string question;           // the one question that the lesson answers
  int ranks = 4, most_ranks = 8;  // default and limit of --ranks
  std::vector<Flag> flags = {};
};

struct Options {
  int ranks = 1;
  uint64_t seed = 1337;
  std::string device = "cpu";  // or "reference"
  bool step = false, quiet = false, json = false;
  std::vector<Prediction> predictions;
  std::map<std::string, int64_t> own;  // the lesson's own flags by name; of a switch 0 or 1
};

// Returns nothing after printing the help that --help asks for. Throws InputError with one sentence
// for an unknown flag, a missing value, a value out of range, or --step beside --quiet or --json.
// Flags of the lesson come first in the help, then those of every lesson, and a value that is not
// given is the flag's default.
std::optional<Options> parse_options(int argc, const char* const* argv, const About& about);

}  // namespace zl::lesson
