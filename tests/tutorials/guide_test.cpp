// tutorials/README.md: its links work, and it has the question of each lesson.

#include <catch2/catch_test_macros.hpp>
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

}  // namespace

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
