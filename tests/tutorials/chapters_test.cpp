// The chapters quote what the programs print: a block that begins with "$ ./zl run NN ..." or "$
// diff ..." is run again, and on the page of claims and in README every block.

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <regex>

#include "tests/paths.h"
#include "tests/tutorials/lesson_process.h"
#include "tests/zerolab/command.h"

namespace tutorials {
namespace {

struct Quote {
  int line;
  std::string command;
  std::vector<std::string> output;  // "...": any lines
};

std::vector<Quote> quotes_of(const std::string& text) {
  std::vector<Quote> quotes;
  bool inside = false;
  int number = 0;
  for (const std::string& line : cli::lines(text)) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
    } else if (inside && line.starts_with("$ ")) {
      quotes.push_back({number, line.substr(2), {}});
    } else if (inside && !quotes.empty() &&
               number == quotes.back().line + int(quotes.back().output.size()) + 1) {
      quotes.back().output.push_back(line);
    }
  }
  return quotes;
}

// A line that begins with "~" depends on the machine: its numbers are not compared, nor the units
// of times.
std::string comparable(const std::string& line) {
  return line.starts_with("~")
             ? std::regex_replace(line, std::regex("[0-9][0-9.e+-]*( (us|ms|s)\\b)?"), "#")
             : line;
}

// The first line of the quote that the output does not have in this order.
std::optional<std::string> missing(const Quote& quote, const std::vector<std::string>& output) {
  size_t at = 0;
  bool any = false;
  for (const std::string& line : quote.output) {
    if (line == "...") {
      any = true;
      continue;
    }
    while (any && at < output.size() && comparable(output[at]) != comparable(line)) ++at;
    if (at >= output.size() || comparable(output[at]) != comparable(line)) return line;
    any = false;
    ++at;
  }
  if (!any && at < output.size()) return "(the end, before: " + output[at] + ")";
  return std::nullopt;
}

std::string run_command(const std::string& command) {
  static const std::regex lesson("\\./zl run ([0-9][0-9])(.*)");
  std::smatch match;
  if (std::regex_match(command, match, lesson)) {
    for (const std::string& name : lesson_names())
      if (name.starts_with(match[1].str())) return run_lesson(name, match[2]).out;
    return "no such lesson";
  }
  const bool program = command.starts_with("./zl ");
  return cli::shell("cd '" ZEROLAB_SOURCE_DIR "' && " +
                    (program ? "\"$ZEROLAB\"" + command.substr(4) : command))
      .out;
}

bool is_checked(const std::string& command) {
  return command.starts_with("./zl run ") || command.starts_with("diff ");
}

std::vector<std::filesystem::path> chapters() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ZEROLAB_SOURCE_DIR "/tutorials"))
    if (std::regex_match(entry.path().filename().string(), std::regex("[0-9][0-9]_.*\\.md")))
      paths.push_back(entry.path());
  return paths;
}

void check(const std::string& page, const Quote& quote) {
  CAPTURE(page, quote.line, quote.command);
  const std::string output = run_command(quote.command);
  INFO(output);
  CHECK(missing(quote, cli::lines(output)).value_or("") == "");
}

std::string text_of(const std::string& name) {
  return cli::read_file(ZEROLAB_SOURCE_DIR "/" + name);
}

}  // namespace

TEST_CASE("the chapters quote what the programs print", "[tutorials]") {
  for (const auto& chapter : chapters()) {
    int checked = 0;
    for (const Quote& quote : quotes_of(cli::read_file(chapter))) {
      if (!is_checked(quote.command) || quote.output.empty()) continue;
      ++checked;
      check(chapter.filename().string(), quote);
    }
    CAPTURE(chapter.filename().string());
    CHECK(checked > 0);
  }
}

TEST_CASE("README and the page of claims quote what the commands print", "[tutorials]") {
  for (const char* name : {"README.md", "tutorials/reference/claims.md"}) {
    const std::vector<Quote> quotes = quotes_of(text_of(name));
    CHECK_FALSE(quotes.empty());
    for (Quote quote : quotes) {
      CAPTURE(name, quote.command);
      CHECK(quote.command.starts_with("./zl "));
      CHECK_FALSE(quote.output.empty());
      std::vector<std::string> output = cli::lines(run_command(quote.command));
      // The width of a column depends on the times in it.
      for (auto* all : {&quote.output, &output})
        for (std::string& line : *all) line = std::regex_replace(line, std::regex(" +"), " ");
      CHECK(missing(quote, output).value_or("") == "");
    }
  }
}

TEST_CASE("each of the twelve claims has a command and a verdict", "[tutorials]") {
  static const std::regex verdict("\\*\\*(True|False|Depends)\\*\\*");
  int count = 0;
  const std::string claims = text_of("tutorials/reference/claims.md");
  for (size_t at = claims.find("\n## "); at != std::string::npos;) {
    const size_t next = claims.find("\n## ", at + 1);
    const std::string claim = claims.substr(at + 1, next - at - 1);
    CAPTURE(claim);
    CHECK(claim.starts_with("## " + std::to_string(++count) + ". "));
    CHECK(std::regex_search(claim, verdict));
    CHECK_FALSE(quotes_of(claim).empty());
    at = next;
  }
  CHECK(count == 12);
}

// Each promise of README's table, with the command that shows it.
TEST_CASE("the commands that show what README promises end well", "[tutorials]") {
  const std::string readme = text_of("README.md");
  const size_t begin = readme.find("| promise |"), end = readme.find("\n\n", begin);
  const std::string table = readme.substr(begin, end - begin);
  static const std::regex command("`(\\./zl (compare|plan|train)[^`]*)`");
  int commands = 0;
  for (std::sregex_iterator it(table.begin(), table.end(), command), none; it != none; ++it) {
    CAPTURE((*it)[1].str());
    ++commands;
    const std::string line =
        std::regex_replace((*it)[1].str(), std::regex("\\./zl "), "\"$ZEROLAB\" ");
    const int code = cli::shell("d=$(mktemp -d) && cd \"$d\" && { " + line +
                                "; code=$?; rm -r \"$d\"; exit $code; }")
                         .code;
    CHECK(code == (cli::contains(line, "--device-memory") ? 3 : 0));
  }
  CHECK(commands >= 5);
}

TEST_CASE("every lesson has a chapter with its questions and their answers", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const std::string text =
        cli::read_file(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials/" + name + ".md");
    CAPTURE(name);
    for (const char* part : {"## The run", "## An experiment", "## Three questions",
                             "## What this does not show", "## Where the code is", "## Answers"})
      CHECK(cli::contains(text, part));
  }
}

TEST_CASE(
    "every chapter begins with the text in plain words, and quotes no source without its name",
    "[tutorials]") {
  for (const auto& chapter : chapters()) {
    const std::string text = cli::read_file(chapter);
    CAPTURE(chapter.filename().string());
    const size_t link = text.find("In plain words first: [");
    CHECK(link < text.find("## "));
    CHECK(cli::contains(text, "](../nn/data/corpus/"));
    for (const char* unnamed : {"the articles", "One article", "a published tutorial", "A table"})
      CHECK_FALSE(cli::contains(text, unnamed));
  }
  const std::string guide = cli::read_file(ZEROLAB_SOURCE_DIR "/tutorials/README.md");
  for (const auto& text : std::filesystem::directory_iterator(ZEROLAB_SOURCE_DIR "/nn/data/corpus"))
    CHECK(cli::contains(guide, "](../nn/data/corpus/" + text.path().filename().string() + ")"));
}

TEST_CASE("the check of quotes notices a changed number, a missing line and one too many",
          "[tutorials]") {
  const std::vector<std::string> output{"a 1", "~ b 2.5e-7", "c 3", "d"};
  const auto found = [&](std::vector<std::string> quote) {
    return missing({0, "", std::move(quote)}, output).value_or("");
  };
  CHECK(found({"a 1", "~ b 2.5e-7", "c 3", "d"}).empty());
  CHECK(found({"a 1", "~ b 9.1", "c 3", "d"}).empty());
  CHECK(missing({0, "", {"~ in 4 us"}}, {"~ in 17 ms"}).value_or("").empty());
  CHECK(missing({0, "", {"~ in 4 ranks"}}, {"~ in 17 ms"}).has_value());
  CHECK(found({"...", "c 3", "..."}).empty());
  CHECK(found({"a 1", "...", "d"}).empty());
  CHECK(found({"a 2", "..."}) == "a 2");
  CHECK(found({"a 1", "c 3", "..."}) == "c 3");
  CHECK(found({"...", "d", "c 3"}) == "c 3");
  CHECK(found({"a 1", "~ b 2.5e-7", "c 3"}) == "(the end, before: d)");
  CHECK(quotes_of("x\n```\n$ diff a b\n1c1\n```\n```cpp\nint i;\n```\n").size() == 1);
}

// --- tutorials/README.md: its links work, it has the question of each lesson, and its reading path
// is short.

namespace {

const std::string folder = ZEROLAB_SOURCE_DIR "/tutorials/";

// Without Markdown and typesetting.
std::string plain(const std::string& text) {
  return std::regex_replace(text, std::regex("[^A-Za-z0-9,?\\- ]"), "");
}

// Lines of the files that a part of the guide links, and the minutes that it gives.
struct Part {
  std::string title;
  int64_t lines = 0, minutes = 0;
};
std::vector<Part> parts_of(const std::string& path_section) {
  static const std::regex title("\\*\\*(.*)\\*\\* · ([0-9]+) minutes.*");
  static const std::regex file("\\]\\((\\.\\./[^)]*\\.(h|cpp))\\)");
  std::vector<Part> parts;
  for (const std::string& line : cli::lines(path_section)) {
    std::smatch match;
    if (std::regex_match(line, match, title)) parts.push_back({match[1], 0, std::stoll(match[2])});
    for (std::sregex_iterator it(line.begin(), line.end(), file), end; it != end; ++it) {
      REQUIRE(!parts.empty());
      parts.back().lines += int64_t(cli::lines(cli::read_file(folder + (*it)[1].str())).size());
    }
  }
  return parts;
}

}  // namespace

TEST_CASE("the reading path has at most 3,000 lines, and a minute for each seven", "[tutorials]") {
  const std::string guide = cli::read_file(folder + "README.md");
  const size_t begin = guide.find("## The reading path"), end = guide.find("## More code");
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  int64_t lines = 0;
  for (const Part& part : parts_of(guide.substr(begin, end - begin))) {
    CAPTURE(part.title, part.lines, part.minutes);
    CHECK(part.lines > 0);
    CHECK(std::abs(part.minutes - part.lines / 7) <= 5);
    lines += part.lines;
  }
  CHECK(lines > 2000);
  CHECK(lines <= 3000);
  const std::vector<Part> long_part =
      parts_of("**9. x** · 10 minutes\n- [a](../tensor/memory.h), [b](../tensor/tensor.h)");
  REQUIRE(long_part.size() == 1);
  CHECK(long_part[0].lines / 7 > long_part[0].minutes + 5);
}

TEST_CASE("every link in tutorials/ leads to a file", "[tutorials]") {
  static const std::regex link("\\]\\(([^)#: ]+)\\)");  // [&](Tensor x) is C++
  int links = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = cli::read_file(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++links) {
      CAPTURE(entry.path().string(), (*it)[1].str());
      CHECK(std::filesystem::exists(entry.path().parent_path() / (*it)[1].str()));
    }
  }
  CHECK(links > 40);
}

TEST_CASE("the guide lists every lesson with the question that it answers", "[tutorials]") {
  const std::string guide = plain(cli::read_file(folder + "README.md"));
  for (const std::string& name : lesson_names()) {
    const std::string says =
        cli::lines(run_lesson(name, "--help").out).at(0);  // "06_zero1: Who updates …?"
    CAPTURE(name, says);
    cli::check_says(
        guide, {plain(says.substr(says.find(": ") + 2)), name.substr(0, 2) + " " + name.substr(3)});
  }
}

// Without the flag Slurm waits for a rank that is stopped until the job's time limit.
TEST_CASE("every srun line that trains ends the job with its first bad rank", "[tutorials]") {
  int lines = 0;
  const std::string text = cli::read_file(folder + "reference/machines.md") +
                           cli::read_file(folder + "reference/job.slurm");
  for (const std::string& line : cli::lines(text)) {
    if (!line.starts_with("srun ") && !line.starts_with("    srun ")) continue;
    if (!cli::contains(line, " train ")) continue;
    ++lines;
    CAPTURE(line);
    CHECK(cli::contains(line, "--kill-on-bad-exit=1"));
  }
  CHECK(lines == 3);
}

}  // namespace tutorials
