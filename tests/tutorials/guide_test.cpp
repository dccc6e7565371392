// tutorials/README.md: its links work, it has the question of each lesson, and its reading path is
// short.

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
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
    CHECK(cli::contains(guide, plain(says.substr(says.find(": ") + 2))));
    CHECK(cli::contains(guide, name.substr(0, 2) + " " + name.substr(3)));
  }
}

// Without the flag Slurm waits for a rank that is stopped until the job's time limit.
TEST_CASE("every srun line that trains ends the job with its first bad rank", "[tutorials]") {
  int lines = 0;
  for (const std::string& line : cli::lines(cli::read_file(folder + "reference/lab_machines.md"))) {
    if (!line.starts_with("srun ") && !line.starts_with("    srun ")) continue;
    if (!cli::contains(line, " train ")) continue;
    ++lines;
    CAPTURE(line);
    CHECK(cli::contains(line, "--kill-on-bad-exit=1"));
  }
  CHECK(lines == 3);
}

}  // namespace tutorials
