#include "tutorials/lesson/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tensor/error.h"

namespace zl::lesson {
namespace {

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t whole_number_between(const std::string& flag, const std::string& text, int64_t least,
                             int64_t most) {
  const auto value = whole_number(text);
  require_input(value && *value >= least && *value <= most, flag, " ", text,
                ": this lesson takes a whole number from ", least, " to ", most);
  return *value;
}

Prediction parse_prediction(const std::string& text) {
  const size_t equals = text.find('=');
  Prediction prediction{.key = text.substr(0, equals)};
  require_input(!prediction.key.empty(), "--predict ", text,
                ": write --predict KEY, or --predict KEY=VALUE");
  if (equals == std::string::npos) return prediction;
  prediction.value = parse_number(text.substr(equals + 1));
  require_input(prediction.value.has_value(), "--predict ", text, ": '", text.substr(equals + 1),
                "' is not a number; write it as 57600, 57,600 or 56.25KiB");
  return prediction;
}

class Parser {
 public:
  Parser(const std::vector<std::string>& arguments, const About& about)
      : arguments_(arguments), about_(about) {
    options_.ranks = about.ranks;
  }

  Options parse() {
    while (at_ < arguments_.size()) one();
    const char* silent = options_.quiet ? "--quiet" : options_.json ? "--json" : nullptr;
    require_input(!options_.step || !silent, "--step shows what ", silent ? silent : "",
                  " hides; choose one of them");
    return options_;
  }

 private:
  void one() {
    std::string name = arguments_[at_++];
    const size_t equals = name.find('=');
    attached_.reset();
    if (equals != std::string::npos && name.starts_with("--")) {
      attached_ = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name == "--help" || name == "-h") return set(options_.help, name);
    if (name == "--step") return set(options_.step, name);
    if (name == "--quiet") return set(options_.quiet, name);
    if (name == "--json") return set(options_.json, name);
    if (name == "--ranks")
      return void(options_.ranks =
                      int(whole_number_between(name, value(name, "N"), 1, about_.most_ranks)));
    if (name == "--seed")
      return void(options_.seed =
                      uint64_t(whole_number_between(name, value(name, "S"), 0, INT64_MAX)));
    if (name == "--predict") return predict();
    own(name);
  }

  void set(bool& flag, const std::string& name) {
    require_input(!attached_, name, " takes no value");
    flag = true;
  }

  std::string value(const std::string& name, const std::string& argument) {
    if (attached_) return *attached_;
    require_input(at_ < arguments_.size() && !arguments_[at_].starts_with("--"), name,
                  " needs a value: ", name, " ", argument);
    return arguments_[at_++];
  }

  void predict() {
    if (!attached_ && (at_ >= arguments_.size() || arguments_[at_].starts_with("-")))
      return void(options_.predict_all = true);
    options_.predictions.push_back(parse_prediction(value("--predict", "KEY=VALUE")));
  }

  void own(const std::string& name) {
    const auto flag = std::ranges::find(about_.flags, name, &Flag::name);
    require_input(flag != about_.flags.end(), "there is no flag '", name, "' in ", about_.name,
                  "; --help lists those that there are");
    std::string& given = options_.own[name];
    if (flag->argument.empty()) return void(require_input(!attached_, name, " takes no value"));
    given = value(name, flag->argument);
    if (flag->most > 0) whole_number_between(name, given, flag->least, flag->most);
    if (flag->choices.empty() || std::ranges::count(flag->choices, given) > 0) return;
    std::string known;
    for (const std::string& choice : flag->choices) known += str(known.empty() ? "" : ", ", choice);
    throw InputError(str(name, " ", given, ": it is one of ", known));
  }

  const std::vector<std::string>& arguments_;
  const About& about_;
  Options options_;
  std::optional<std::string> attached_;  // of --flag=VALUE
  size_t at_ = 0;
};

std::string row(const std::string& left, const std::string& right) {
  return "  " + left + std::string(left.size() < 22 ? 22 - left.size() : 1, ' ') + right + "\n";
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments, const About& about) {
  return Parser(arguments, about).parse();
}

const Flag& own_flag(const About& about, const std::string& name) {
  const auto flag = std::ranges::find(about.flags, name, &Flag::name);
  require(flag != about.flags.end(), about.name, " has no flag ", name);
  return *flag;
}

std::string help_text(const About& about) {
  const std::string number = about.name.substr(0, 2);
  std::string text = about.name + ": " + about.question + "\n\n";
  text +=
      "Run it, predict its numbers, then change a flag and say beforehand what will change. The "
      "chapter is tutorials/" +
      about.name + ".md,\n";
  text += "the program tutorials/" + about.name + ".cpp.\n\n";
  text += "  ./zl run " + number +
          "                        what it measures, beside the formula for it\n";
  text += "  ./zl run " + number +
          " --predict              asks you for each number before it shows it\n";
  text +=
      "  ./zl run " + number +
      " --predict KEY=VALUE    judges your number; KEYs are the first words of the lines with =\n";
  text += "  ./zl run " + number +
          " --step                 stops all ranks at each event and shows who holds what\n\n";
  for (const Flag& flag : about.flags) {
    const bool has_default = !flag.argument.empty() && !flag.value.empty();
    text += row(flag.argument.empty() ? flag.name : flag.name + " " + flag.argument,
                flag.help + (has_default ? " (" + flag.value + ")" : ""));
  }
  text +=
      row("--ranks N", str("1 to ", about.most_ranks, " ranks, each a thread (", about.ranks, ")"));
  text += row("--seed S", "of the initial weights (1337)");
  text += row("--predict [KEY[=VALUE]]", "may be given several times");
  text += row("--step", "keys: n next event, u next unit, m memory, c communication, q quit");
  text += row("--quiet",
              "only the last line (RESULT, PASS or FAIL, held / all), and how predictions did");
  text += row("--json", "one document with all numbers and checks");
  text += "\nExit code: 0 all checks held, 1 one did not, 2 a flag makes no sense.\n";
  return text;
}

std::optional<double> parse_number(std::string text) {
  std::erase_if(text, [](char c) { return c == ',' || c == '_' || c == ' '; });
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number)) return std::nullopt;
  const std::string unit = end;
  constexpr std::pair<const char*, double> units[] = {
      {"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}, {"kB", 1e3}, {"k", 1e3}, {"MB", 1e6}};
  for (const auto& [name, factor] : units)
    if (unit == name) return number * factor;
  return std::nullopt;
}

}  // namespace zl::lesson
