// zerolab exercise check and board: grade the file of one student, or those of a class.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tensor/platform/gpus.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/commands/exercise.h"
#include "tutorials/zerolab/report/grade_report.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;
using exercises::Exercise, exercises::Toolchain;

constexpr const char* kExerciseCheckFooter =
    R"(Compiles FILE, or the one .cpp file of the folder FILE, and runs each check of the exercise
in a separate process, which may use 10 s, 2 GiB of memory and 64 MiB per file that it writes. A
failed check skips the rest of its group; one of the first group skips all others. Without --student
sizes, ranks and data are others in each run. --all takes each subfolder of DIR as a student, whose
ID is its name. tutorials/exercises/README.md has the forms of results.

  zerolab exercise check 05                        05_zero1.cpp in this folder
  zerolab exercise check 06 work --step            event by event
  zerolab exercise check 05 --all submissions --csv grades.csv

Exit codes: 0 all points (with --all: all files were graded), 1 not all points, 2 usage, no such
file, or no compiler, 74 a file could not be written, 130 Ctrl-C)";

struct CheckCommand {
  std::string which, file, student, all, csv, gradescope, junit;
  std::string device = "cpu";
  bool json = false, quiet = false, force = false, step = false;
};

constexpr const char* kBoardFooter =
    R"(Grades the file of each subfolder of DIR with the same sizes and data. Of those with 100
points it compares a rank's bytes at the peak, the bytes it sends, its calls, and the lines that are
neither blank nor only a // comment: the first that differs decides. Exercises without ranks are
compared by lines alone.

Exit codes: 0 all files were graded, 2 usage, no such folder, or no compiler, 130 Ctrl-C)";

exercises::GradeOptions grade_options(const CheckCommand& command, const std::string& student) {
  return {.seed = exercises::seed_of(student),
          .device = command.device,
          .junit = !command.junit.empty(),
          .interrupted = interrupt_requested};
}

// Throws InputError if the checks cannot run here.
void require_machine(const CheckCommand& command, const Toolchain& toolchain) {
  if (command.device == "cuda")
    if (const Gpus found = find_gpus(); !found.usable())
      throw InputError("--device cuda: " + found.problem +
                       "; use --device cpu, which runs the same checks, or " + found.cure);
  require_compiler(toolchain);
}

// The file of a folder. Links are refused: they could lead to a file of somebody else.
Submission submission_in(const std::string& folder, const std::string& name,
                         const std::string& student) {
  std::error_code error;
  std::vector<std::string> sources;
  if (fs::is_symlink(folder, error)) return {student, "", "the folder is a link"};
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".cpp") sources.push_back(entry.path().string());
  const std::string expected = fs::path(folder) / name;
  if (fs::exists(fs::symlink_status(expected, error))) sources = {expected};
  if (sources.empty()) return {student, "", "there is no file " + name};
  if (sources.size() > 1)
    return {student, "", str("there are ", sources.size(), " .cpp files, but no ", name)};
  if (fs::is_regular_file(fs::symlink_status(sources[0], error))) return {student, sources[0], ""};
  return {student, sources[0], "it is a link, a folder or a pipe; a plain file is needed"};
}

// What FILE means: a file, or the folder that holds it.
Submission submission_of(const CheckCommand& command, const Exercise& exercise) {
  const std::string name = file_name(exercise), path = command.file.empty() ? name : command.file;
  std::error_code error;
  Submission found{command.student, path, ""};
  if (fs::is_directory(path, error)) {
    found = submission_in(path, name, command.student);
    if (!found.problem.empty()) found.problem = path + ": " + found.problem;
  } else if (!fs::exists(path, error)) {
    found.problem =
        str("there is no file '", path, "'", command.file.empty() ? " in this folder" : "", "; '",
            exercise_command("start " + two_digits(exercise) + " DIR"), "' creates ", name);
  }
  return found;
}

// What to type after a failure; "" if there are no hints and no events.
std::string next_command(const CheckCommand& command, const Exercise& exercise) {
  std::string next;
  if (!hints_file(exercise).empty()) next = exercise_command("hint " + two_digits(exercise));
  if (exercise.records_events() && !command.step)
    next += str(next.empty() ? "" : ", or ", "repeat the command with --step: it shows the first ",
                "failed check event by event");
  return next;
}

void write_file(const std::string& path, const std::string& text, bool force) {
  if (!path.empty()) OutputFile(path, "", force).write_text(text);
}

int check_one(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  require_input(!command.step || exercise.records_events(),
                "--step: the checks of this exercise record no events; those of 05, 06 and 07 do");
  Submission submission = submission_of(command, exercise);
  const bool missing = !submission.problem.empty();
  require_input(!missing || command.json || !command.gradescope.empty() || !command.junit.empty(),
                submission.problem);
  for (const std::string& path : {command.gradescope, command.junit})
    if (!path.empty()) require_output_file(path, "", command.force);
  require_machine(command, toolchain);
  const exercises::GradeOptions options = grade_options(command, command.student);
  Progress progress(1, command.quiet);
  exercises::Grade& grade = submission.grade;
  if (!missing) {
    progress.item("compiling and checking " + printable_line(submission.file));
    grade = exercises::grade(exercise, submission.file, toolchain, options);
  }
  progress.clear();
  const std::string json = grade_json(exercise, submission);
  write_file(command.gradescope, json, command.force);
  write_file(command.junit, grade_junit(exercise, submission), command.force);
  const std::string next = next_command(command, exercise);
  std::fputs((command.json ? json : grade_text(exercise, submission, next)).c_str(), stdout);
  if (command.step && grade.first_failure() != nullptr)
    show_first_failure(exercise, grade, toolchain, options);
  else if (command.step)
    std::fputs("zerolab: no check failed, so there is nothing for --step to show\n", stderr);
  return grade.passed() ? kFine : kFailed;
}

// One for each subfolder, sorted by name. Hidden folders, and those that macOS adds to archives,
// are no students.
std::vector<Submission> submissions_of(const std::string& folder, const std::string& name) {
  std::error_code error;
  std::vector<Submission> all;
  require_input(fs::is_directory(folder, error), "there is no folder '", folder, "'");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string student = entry.path().filename();
    if (entry.is_directory(error) && !student.starts_with(".") && student != "__MACOSX")
      all.push_back(submission_in(entry.path(), name, student));
  }
  require_input(!all.empty(), "'", folder,
                "' has no subfolder; each student needs one, with NN_name.cpp in it");
  std::ranges::sort(all, {}, &Submission::student);
  return all;
}

// The first one of which a student has a file.
Exercise exercise_in(const std::string& folder, const Toolchain& toolchain) {
  for (const Exercise& one : all_exercises(toolchain))
    for (const Submission& submission : submissions_of(folder, file_name(one)))
      if (fs::path(submission.file).filename() == file_name(one)) return one;
  throw InputError(str("no subfolder of '", folder,
                       "' has a file that is named as an exercise is, such as 05_zero1.cpp"));
}

// With --csv, or the board. What the machine does not allow is thrown: it is no fault of a student.
int check_class(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  std::vector<Submission> all = submissions_of(command.all, file_name(exercise));
  if (!command.csv.empty()) OutputFile(command.csv, "", command.force);  // says early what is wrong
  require_machine(command, toolchain);
  const std::string csv = printable_line(command.csv);
  Progress progress(int64_t(all.size()), command.quiet);
  std::string text = csv_names(exercise);  // of the CSV file
  size_t rows = 0, full = 0;
  double points = 0;
  try {
    for (Submission& one : all) {
      progress.item(printable_line(one.student));
      end_if_interrupted();
      if (one.problem.empty()) try {
          const auto options =
              grade_options(command, command.student.empty() ? one.student : command.student);
          one.grade = exercises::grade(exercise, one.file, toolchain, options);
        } catch (const exercises::UnreadableFile& e) {
          one.problem = e.what();
        }
      // The whole file again: a row that is in it stays, whatever happens later.
      write_file(command.csv, text += csv_row(exercise, one), command.force || rows > 0);
      ++rows, full += one.grade.passed(), points += one.grade.points();
    }
  } catch (...) {
    progress.clear();
    const std::string kept =
        rows == 0 ? " was not written" : str(" has ", rows, " of ", all.size(), " rows");
    std::fprintf(stderr, "zerolab: grading ended at student '%s'%s\n",
                 printable_line(all[rows].student).c_str(),
                 csv.empty() ? "" : ("; " + csv + kept).c_str());
    throw;
  }
  progress.clear();
  if (csv.empty()) {
    print_board(exercise, all, command.json);
    return kFine;
  }
  std::printf("%s, %zu with all points, mean %.1f\n%s: %s, one per student\n",
              plural(int64_t(rows), "student").c_str(), full, points / double(rows), csv.c_str(),
              plural(int64_t(rows), "row").c_str());
  return kFine;
}

int check(const CheckCommand& command) {
  if (command.force && (command.csv + command.gradescope + command.junit).empty())
    throw UsageError("--force has no effect without a file to write");
  const Toolchain toolchain = exercises::find_toolchain();
  const Exercise exercise = command.which.empty() ? exercise_in(command.all, toolchain)
                                                  : find_exercise(command.which, toolchain);
  return (command.all.empty() ? check_one : check_class)(command, exercise, toolchain);
}

}  // namespace

void add_exercise_check(CLI::App& exercise, Invocation& invocation) {
  auto command = std::make_shared<CheckCommand>();
  Flags flags(exercise, invocation, "check", "grade a file, or the files of a class",
              [command] { return check(*command); });
  flags.name("NN", "", "number or name of the exercise, such as 05", command->which);
  flags.name("FILE", "", "the file to grade (default: NN_name.cpp in this folder)", command->file);
  flags.name("--student", "ID", "sizes, ranks and data of this student", command->student);
  flags.add(
      "--device", "WHERE", command->device,
      [](const std::string& text) {
        return choose(text, {"cpu", "cuda"}), text;
      },
      "where the checks compute: cpu or cuda (default cpu)");
  flags.toggle("--step", "then show the first failed check event by event (05 to 07)",
               command->step);
  flags.toggle("--json", "print Gradescope's results.json instead of text", command->json);
  flags.name("--gradescope", "FILE", "write Gradescope's results.json", command->gradescope);
  flags.name("--junit", "FILE", "write JUnit's XML", command->junit);
  flags.toggle("--force", "replace the files that are written", command->force);
  flags.toggle("-q,--quiet", "no progress", command->quiet);
  flags.group("A class");
  flags.name("--all", "DIR", "grade each subfolder of DIR", command->all);
  flags.name("--csv", "FILE", "the file that gets one row per student", command->csv);
  flags.required("NN");
  flags.needs("--all", "--csv");
  flags.needs("--csv", "--all");
  for (const char* of_one : {"FILE", "--student", "--gradescope", "--junit", "--json", "--step"})
    flags.excludes("--all", of_one);
  flags.excludes("--json", "--step");
  flags.footer(kExerciseCheckFooter);
}

void add_exercise_board(CLI::App& exercise, Invocation& invocation) {
  auto command = std::make_shared<CheckCommand>();
  command->student = "board";  // all files get its sizes and data
  Flags flags(exercise, invocation, "board", "compare the files of a class that have 100 points",
              [command] { return check(*command); });
  flags.name("DIR", "", "the folder with a subfolder for each student", command->all);
  flags.name("--exercise", "NN", "default: the first that DIR has files of", command->which);
  flags.toggle("--json", "print one JSON document instead of text", command->json);
  flags.toggle("-q,--quiet", "no progress", command->quiet);
  flags.required("DIR");
  flags.footer(kBoardFooter);
}

}  // namespace zl::cli
