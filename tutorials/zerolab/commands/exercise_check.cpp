// zerolab exercise check: grades the file of one student, or those of a class.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "tensor/platform/gpus.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/commands/exercise.h"
#include "tutorials/zerolab/report/grade_report.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;
using exercises::Exercise, exercises::Toolchain, exercises::Grade;

constexpr const char* kExerciseCheckFooter =
    R"(Compiles FILE and runs it against the checks of the exercise. Each check runs it in a
separate process, which may use 10 s, 2 GiB of memory and 64 MiB per file that it writes. A failed
check skips the rest of its group; one of the first group skips all others.

--student derives sizes, ranks and data from the name. Without it they are others in each run.
FILE may be the folder that holds NN_name.cpp, or one .cpp file. With --json, --gradescope or
--junit a file that is missing gets 0 points and the reason.
--all takes each subfolder of DIR as one student: its name is the ID, and it holds NN_name.cpp or
one .cpp file. A file that is missing or refused gets 0 points and the reason, and grading goes on.
The CSV file gets a row after each student, so that Ctrl-C keeps the rows that are finished.

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

void require_flags(const CheckCommand& command) {
  const bool all = !command.all.empty(),
             files = !command.gradescope.empty() || !command.junit.empty();
  const bool odd = std::ranges::any_of(command.student, [](char c) { return iscntrl(c) != 0; });
  const std::pair<bool, const char*> refused[] = {
      {command.which.empty(), "which exercise? write: zerolab exercise check NN FILE"},
      {odd, "--student: the ID has a line break or another control character; write it without"},
      {all && command.csv.empty(), "--all needs --csv FILE, the file that gets the points"},
      {all && (files || !command.file.empty() || !command.student.empty()),
       "--all grades the files below DIR, whose names are the students, and writes --csv FILE; "
       "leave out FILE, --student, --gradescope and --junit"},
      {(all && (command.json || command.step)) || (command.json && command.step),
       "--json, --step and --all show something else each; give one of them"},
      {!all && !command.csv.empty(), "--csv has no effect without --all DIR"},
      {!all && !files && command.force, "--force has no effect without a file to write"}};
  for (const auto& [wrong, sentence] : refused)
    if (wrong) throw UsageError(sentence);
}

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
  if (path.empty()) return;
  OutputFile file(path, "", force);
  file.write_text(text);
  file.commit();
}

int check_one(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  require_input(!command.step || exercise.records_events(),
                "--step: the checks of this exercise record no events; those of 05, 06 and 07 do");
  const Submission submission = submission_of(command, exercise);
  const bool missing = !submission.problem.empty();
  require_input(!missing || command.json || !command.gradescope.empty() || !command.junit.empty(),
                submission.problem);
  for (const std::string& path : {command.gradescope, command.junit})
    if (!path.empty()) require_output_file(path, "", command.force);
  require_machine(command, toolchain);
  exercises::GradeOptions options = grade_options(command, command.student);
  Progress progress(int64_t(exercise.checks.size()) + 1, command.quiet);
  options.on_check = [&](const std::string& check) { progress.item(check); };
  Grade grade;
  if (!missing) {
    progress.item("compiling " + printable_line(submission.file));
    grade = exercises::grade(exercise, submission.file, toolchain, options);
  }
  progress.clear();
  const std::string json = grade_json(exercise, submission, grade);
  write_file(command.gradescope, json, command.force);
  write_file(command.junit, grade.results.empty() ? junit_without_checks(json) : grade.junit,
             command.force);
  std::fputs((command.json ? json : grade_text(json, next_command(command, exercise))).c_str(),
             stdout);
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
  require_input(fs::is_directory(folder, error), "--all: there is no folder '", folder, "'");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string student = entry.path().filename();
    if (entry.is_directory(error) && !student.starts_with(".") && student != "__MACOSX")
      all.push_back(submission_in(entry.path(), name, student));
  }
  require_input(!error, "--all: '", folder, "' cannot be read: ", error.message());
  require_input(!all.empty(), "--all: '", folder,
                "' has no subfolder; each student needs one, with ", name, " in it");
  std::ranges::sort(all, {}, &Submission::student);
  return all;
}

// What the machine does not allow is thrown: it is no fault of a student.
std::string grade_student(const CheckCommand& command, const Exercise& exercise,
                          const Toolchain& toolchain, Submission submission) {
  Grade grade;
  try {
    if (submission.problem.empty())
      grade = exercises::grade(exercise, submission.file, toolchain,
                               grade_options(command, submission.student));
  } catch (const exercises::UnreadableFile& e) {
    submission.problem = e.what();
  }
  return grade_json(exercise, submission, grade);
}

int check_class(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  const std::vector<Submission> all = submissions_of(command.all, file_name(exercise));
  const OutputFile writable(command.csv, "", command.force);  // or says early that it is not
  require_machine(command, toolchain);
  const std::string csv = printable_line(command.csv);
  Progress progress(int64_t(all.size()), command.quiet);
  std::vector<std::string> grades;  // whose rows are in the CSV file
  std::string text;                 // of that file
  try {
    for (const Submission& submission : all) {
      progress.item(printable_line(submission.student));
      if (interrupt_requested()) throw Interrupted();
      const std::string grade = grade_student(command, exercise, toolchain, submission);
      if (grades.empty()) text = csv_names(grade);
      // The whole file again: a row that is in it stays, whatever happens later.
      write_file(command.csv, text += csv_row(grade), command.force || !grades.empty());
      grades.push_back(grade);
    }
  } catch (...) {
    progress.clear();
    const size_t rows = grades.size();
    const std::string kept =
        rows == 0 ? " was not written" : str(" has ", rows, " of ", all.size(), " rows");
    std::fprintf(stderr, "zerolab: grading ended at student '%s'; %s%s\n",
                 printable_line(all[rows].student).c_str(), csv.c_str(), kept.c_str());
    throw;
  }
  progress.clear();
  std::printf("%s%s: %s, one per student\n", grades_text(grades).c_str(), csv.c_str(),
              plural(int64_t(grades.size()), "row").c_str());
  return kFine;
}

int check(const CheckCommand& command) {
  require_flags(command);
  const Toolchain toolchain = exercises::find_toolchain();
  const Exercise exercise = find_exercise(command.which, toolchain);
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
  flags.value("--device", "cpu|cuda", "where the checks compute (default cpu)",
              [command](const auto& text) {
                require_input(text == "cpu" || text == "cuda", "'", text,
                              "' is neither cpu nor cuda");
                command->device = text;
              });
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
  flags.footer(kExerciseCheckFooter);
}

}  // namespace zl::cli
