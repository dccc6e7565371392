// zerolab exercise: lists the exercises, gives out their files and hints, and grades solutions.

#include "tutorials/zerolab/commands/exercise.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;
using exercises::Exercise, exercises::find_toolchain;
using Json = nlohmann::ordered_json;

constexpr SmallFile kExerciseFile{"exercise", 1 << 20};

constexpr const char* kStartFooter =
    "Copies NN_name.md, the task, and NN_name.cpp, the file to complete, into DIR, which is "
    "created\n"
    "if needed. No file is replaced.";

struct ExerciseCommand {
  std::string which, folder;
  int64_t hint = 1;
  bool json = false;
};

int list(const ExerciseCommand& command) {
  Json json{{"schema", 1}, {"command", "exercise list"}, {"exercises", Json::array()}};
  TextTable table;
  table.row({"exercise", "checks", "points"});
  for (const Exercise& exercise : all_exercises(find_toolchain())) {
    Json checks = Json::array();
    for (const auto& [name, group, points] : exercise.checks)
      checks.push_back({{"name", name}, {"group", group}, {"points", points}});
    json["exercises"].push_back({{"number", exercise.number},
                                 {"name", exercise.name},
                                 {"title", exercise.title},
                                 {"version", exercise.version},
                                 {"file", file_name(exercise)},
                                 {"points", 100},
                                 {"headers", exercise.headers},
                                 {"checks", checks}});
    table.row({two_digits(exercise) + "  " + exercise.title, str(checks.size()), "100"});
  }
  if (command.json)
    print_json(json);
  else
    std::printf("%snext: %s\n", table.text().c_str(),
                printable(exercise_command("start 01 DIR")).c_str());
  return kFine;
}

int start(const ExerciseCommand& command) {
  const exercises::Toolchain toolchain = find_toolchain();
  const Exercise exercise = find_exercise(command.which, toolchain);
  const std::string from = toolchain.exercises + "/" + exercise.name + "/";
  const fs::path folder = command.folder;
  const std::string task = (folder / (exercise.name + ".md")).lexically_normal(),
                    file = (folder / file_name(exercise)).lexically_normal();
  std::error_code error;
  for (const std::string& path : {task, file})
    require_input(!fs::exists(fs::symlink_status(path, error)), "'", path,
                  "' exists and is kept; choose another folder, or rename it to start again");
  // Its parents must exist, so that a typing error creates nothing.
  if (!fs::is_directory(folder, error) && !fs::create_directory(folder, error) && error)
    throw OutputError(
        str("the folder '", command.folder, "' cannot be created: ", error.message()));
  const OutputFile task_out(task, "", false), file_out(file, "", false);
  const std::string task_text = read_small_file(from + "task.md", kExerciseFile);
  file_out.write_text(read_small_file(from + "start.cpp", kExerciseFile));
  task_out.write_text(task_text);
  const std::string next =
      exercise_command("check " + two_digits(exercise) + " " + shell_word(command.folder));
  std::printf("%s\n  %s  the task: read it first\n  %s  the file to complete\nnext: %s\n",
              exercise.title.c_str(), printable(task).c_str(), printable(file).c_str(),
              printable(next).c_str());
  return kFine;
}

// The texts below the headings "## Hint 1", "## Hint 2" …
std::vector<std::string> hints_of(const std::string& page) {
  std::vector<std::string> hints;
  for (size_t at = page.find("## Hint"), next; at < page.size(); at = next) {
    next = std::min(page.find("## Hint", at + 1), page.size());
    const std::string text = page.substr(at, next - at);
    const size_t begin = text.find_first_not_of("\n", text.find('\n'));
    hints.push_back(text.substr(begin, text.find_last_not_of(" \n") + 1 - begin));
  }
  return hints;
}

int hint(const ExerciseCommand& command) {
  const Exercise exercise = find_exercise(command.which, find_toolchain());
  const std::string file = hints_file(exercise), number = two_digits(exercise);
  require_input(!file.empty(), "the hints of exercise ", number,
                " were left out of this zerolab; ask your teacher");
  const auto hints = hints_of(read_small_file(file, kExerciseFile));
  const size_t which = size_t(command.hint);
  require_input(which <= hints.size(), "exercise ", number, " has ", hints.size(),
                " hints; there is no hint ", which);
  const std::string next =
      which == hints.size()
          ? "This was the last hint."
          : "the next hint: " + exercise_command(str("hint ", number, " ", which + 1));
  std::printf("%s, hint %zu of %zu\n\n%s\n\n%s\n", exercise.title.c_str(), which, hints.size(),
              printable(hints[which - 1]).c_str(), printable(next).c_str());
  return kFine;
}

void add_exercise(CLI::App& exercise, Invocation& invocation) {
  auto command = std::make_shared<ExerciseCommand>();
  constexpr const char* kWhich = "number or name of the exercise, such as 05";

  Flags all(exercise, invocation, "list", "the exercises", [command] { return list(*command); });
  all.toggle("--json", "print one JSON document instead of text", command->json);
  all.footer(
      "Each exercise is one C++ file that you complete. They build on each other: begin with 01.");

  Flags begin(exercise, invocation, "start", "copy the task and the file to complete into a folder",
              [command] { return start(*command); });
  begin.name("NN", "", kWhich, command->which);
  begin.name("DIR", "", "the folder that gets the files", command->folder);
  begin.required("NN");
  begin.required("DIR");
  begin.footer(kStartFooter);

  add_exercise_check(exercise, invocation);

  Flags help(exercise, invocation, "hint", "one hint", [command] { return hint(*command); });
  help.name("NN", "", kWhich, command->which);
  help.add("K", "", command->hint, count_within(), "which of its hints (default 1)");
  help.required("NN");
  help.footer(
      "Hints go from gentle to nearly the answer. Each one ends with the command for the next "
      "one.");

  add_exercise_board(exercise, invocation);
  add_exercise_pack(exercise, invocation);
}

[[maybe_unused]] const bool exercise_is_here = have_program("exercise", add_exercise);

}  // namespace

std::string exercise_command(const std::string& words) {
  return called_as() + " exercise " + words;
}

std::string hints_file(const Exercise& exercise) {
  const std::string file = find_toolchain().exercises + "/" + exercise.name + "/hints.md";
  return fs::exists(file) ? file : "";
}

}  // namespace zl::cli
