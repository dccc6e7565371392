// The flags of a lesson: those that every lesson has, and its own. Few enough for a parser of one
// page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/lesson/lesson.h"

namespace zl::lesson {

// --predict KEY=VALUE, or --predict KEY, which asks.
struct Prediction {
  std::string key;
  std::optional<double> value;
  bool used = false;  // a number of this key came
};

struct Options {
  int ranks = 1;
  uint64_t seed = 1337;
  bool step = false, quiet = false, json = false, help = false;
  bool predict_all = false;  // --predict alone: ask for every number
  std::vector<Prediction> predictions;
  std::map<std::string, std::string> own;  // the lesson's own flags that were given; of a switch ""
};

// Throws InputError with a sentence for what is not a flag, lacks its value or is out of range.
Options parse_options(const std::vector<std::string>& arguments, const About& about);

std::string help_text(const About& about);

// The flag of this name. Throws std::invalid_argument if the lesson has none.
const Flag& own_flag(const About& about, const std::string& name);

// "57,600", "5e4", "56.25 KiB", "57600 B". Empty if that is no number.
std::optional<double> parse_number(std::string text);

}  // namespace zl::lesson
