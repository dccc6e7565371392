// zerolab exercise: lists the exercises, gives out their files and hints, and grades solutions.

#include "tutorials/zerolab/commands/exercise.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using exercises::Exercise, exercises::find_toolchain;
using Json = nlohmann::ordered_json;

constexpr SmallFile kExerciseFile{"exercise", 1 << 20};

constexpr const char* kListFooter =
    R"(Each exercise is one C++ file that you complete. They build on each other: begin with 01.

  zerolab exercise list
  zerolab exercise list --json)";

constexpr const char* kStartFooter =
    R"(Copies two files into DIR, which is created if needed: NN_name.md, the task, and NN_name.cpp,
the file to complete. No file is replaced.

  zerolab exercise start 05 work
  zerolab exercise start 05 .      into this folder

Exit codes: 0 fine, 2 usage, or a file is there already, 74 a file could not be written)";

constexpr const char* kHintFooter =
    R"(Hints go from gentle to nearly the answer. Each one ends with the command for the next one.

  zerolab exercise hint 05
  zerolab exercise hint 05 2)";

struct ExerciseCommand {
  std::string which, folder;
  int64_t hint = 1;
  bool json = false;
};

Json to_json(const Exercise& exercise) {
  Json json{{"number", exercise.number},   {"name", exercise.name}, {"title", exercise.title},
            {"file", file_name(exercise)}, {"points", 100},         {"headers", exercise.headers},
            {"checks", Json::array()}};
  for (const auto& check : exercise.checks)
    json["checks"].push_back(
        {{"name", check.name}, {"group", check.group}, {"points", check.points}});
  return json;
}

int list(const ExerciseCommand& command) {
  const std::vector<Exercise> all = all_exercises(find_toolchain());
  if (command.json) {
    Json json{{"schema", 1}, {"command", "exercise list"}, {"exercises", Json::array()}};
    for (const Exercise& exercise : all) json["exercises"].push_back(to_json(exercise));
    print_json(json);
    return kFine;
  }
  TextTable table;
  table.row({"exercise", "checks", "points"});
  for (const Exercise& exercise : all)
    table.row({two_digits(exercise) + "  " + exercise.title, str(exercise.checks.size()), "100"});
  std::fputs(table.text().c_str(), stdout);
  std::printf("next: %s\n", printable(exercise_command("start 01 DIR")).c_str());
  return kFine;
}

// Creates the folder. Its parents must exist, so that a typing error creates nothing.
void make_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  std::filesystem::create_directory(folder, error);
  if (error)
    throw OutputError(str("the folder '", folder, "' cannot be created: ", error.message()));
}

int start(const ExerciseCommand& command) {
  if (command.which.empty() || command.folder.empty())
    throw UsageError("which exercise, into which folder? write: zerolab exercise start NN DIR");
  const exercises::Toolchain toolchain = find_toolchain();
  const Exercise exercise = find_exercise(command.which, toolchain);
  const std::string from = toolchain.exercises + "/" + exercise.name + "/";
  const auto inside = [&](const std::string& name) {
    return (std::filesystem::path(command.folder) / name).lexically_normal().string();
  };
  const std::string task = inside(exercise.name + ".md"), file = inside(file_name(exercise));
  for (const std::string& path : {task, file}) {
    std::error_code error;
    require_input(!std::filesystem::exists(std::filesystem::symlink_status(path, error)), "'", path,
                  "' exists and is kept; choose another folder, or rename it to start again");
  }
  make_folder(command.folder);
  OutputFile task_out(task, "", false), file_out(file, "", false);
  task_out.write_text(read_small_file(from + "task.md", kExerciseFile));
  file_out.write_text(read_small_file(from + "start.cpp", kExerciseFile));
  task_out.commit();
  file_out.commit();
  std::printf(
      "%s\n  %s  the task: read it first\n  %s  the file to complete\nnext: %s\n",
      exercise.title.c_str(), printable(task).c_str(), printable(file).c_str(),
      printable(exercise_command("check " + two_digits(exercise) + " " + quoted(command.folder)))
          .c_str());
  return kFine;
}

// The texts below the headings "## Hint 1", "## Hint 2" …
std::vector<std::string> hints_of(const std::string& page) {
  std::vector<std::string> hints;
  for (size_t at = page.find("## Hint"); at != std::string::npos;) {
    const size_t begin = page.find('\n', at), next = page.find("\n## Hint", at);
    const size_t end = std::min(next, page.size());
    std::string text = begin < end ? page.substr(begin, end - begin) : "";
    text.erase(0, text.find_first_not_of('\n'));
    text.erase(text.find_last_not_of(" \n") + 1);
    hints.push_back(text);
    at = next == std::string::npos ? next : next + 1;
  }
  return hints;
}

int hint(const ExerciseCommand& command) {
  if (command.which.empty())
    throw UsageError("a hint for which exercise? write: zerolab exercise hint NN");
  const Exercise exercise = find_exercise(command.which, find_toolchain());
  const std::string file = hints_file(exercise);
  require_input(!file.empty(), "the hints of exercise ", two_digits(exercise),
                " were left out of this zerolab; ask your teacher");
  const auto hints = hints_of(read_small_file(file, kExerciseFile));
  require_input(command.hint <= int64_t(hints.size()), "exercise ", two_digits(exercise), " has ",
                hints.size(), " hints; there is no hint ", command.hint);
  std::printf("%s, hint %d of %zu\n\n%s\n\n", exercise.title.c_str(), int(command.hint),
              hints.size(), printable(hints[size_t(command.hint) - 1]).c_str());
  if (command.hint < int64_t(hints.size()))
    std::printf(
        "the next hint: %s\n",
        printable(exercise_command(str("hint ", two_digits(exercise), " ", command.hint + 1)))
            .c_str());
  else
    std::puts("This was the last hint.");
  return kFine;
}

}  // namespace

std::string exercise_command(const std::string& words) {
  const char* zl = std::getenv("ZL_COMMAND");
  return (zl != nullptr && *zl != '\0' ? std::string(zl) : "zerolab") + " exercise " + words;
}

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_-./+,:@%=", c) != nullptr;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string two_digits(const Exercise& exercise) { return exercise.name.substr(0, 2); }
std::string file_name(const Exercise& exercise) { return exercise.name + ".cpp"; }

std::string hints_file(const Exercise& exercise) {
  const std::string file =
      exercises::find_toolchain().exercises + "/" + exercise.name + "/hints.md";
  std::error_code error;
  return std::filesystem::exists(file, error) ? file : "";
}

void add_exercise(CLI::App& app, Invocation& invocation) {
  CLI::App& exercise = *app.add_subcommand("exercise", "write the stages yourself, and grade them");
  exercise.require_subcommand(1);
  auto command = std::make_shared<ExerciseCommand>();
  constexpr const char* kWhich = "number or name of the exercise, such as 05";

  Flags all(exercise, invocation, "list", "the exercises", [command] { return list(*command); });
  all.toggle("--json", "print one JSON document instead of text", command->json);
  all.footer(kListFooter);

  Flags begin(exercise, invocation, "start", "copy the task and the file to complete into a folder",
              [command] { return start(*command); });
  begin.name("NN", "", kWhich, command->which);
  begin.name("DIR", "", "the folder that gets the files", command->folder);
  begin.footer(kStartFooter);

  add_exercise_check(exercise, invocation);

  Flags help(exercise, invocation, "hint", "one hint", [command] { return hint(*command); });
  help.name("NN", "", kWhich, command->which);
  help.value("K", "", "which of its hints (default 1)",
             [command](const auto& text) { command->hint = read_count(text, 1); });
  help.footer(kHintFooter);

  add_exercise_pack(exercise, invocation);
}

}  // namespace zl::cli
