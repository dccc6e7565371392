// zerolab exercise check: grades the file of one student, or those of a class.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <utility>

#include "tensor/platform/gpus.h"
#include "tutorials/exercises/grader/grade.h"
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
using exercises::Exercise, exercises::Toolchain;

constexpr const char* kExerciseCheckFooter =
    R"(Compiles FILE and runs it against the checks of the exercise. Each check runs it in a
separate process, which may use 10 s, 2 GiB of memory and 64 MiB per file that it writes; another
process judges what it did. Checks go from easy to hard. A failed check skips the rest of its
group; one of the first group skips all others. For each failure the output says what it means,
and what was measured.

--student derives sizes, ranks and data from the name, so that numbers cannot be copied. Without
it they are others in each run.
FILE may be the folder that holds NN_name.cpp, or one .cpp file.
--json prints Gradescope's results.json. A file that is missing then gets 0 points and the reason.
--all takes each subfolder of DIR as one student: its name is the ID, and it holds NN_name.cpp or
one .cpp file. A file that is missing or refused gets 0 points and the reason, and grading goes on.
The CSV file gets a row after each student, so that Ctrl-C keeps the rows that are finished.

  zerolab exercise check 05                        05_zero1.cpp in this folder
  zerolab exercise check 05 work                   work/05_zero1.cpp
  zerolab exercise check 06 work --step            with the memory of all ranks at each event
  zerolab exercise check 05 --all submissions --csv grades.csv

Exit codes: 0 all points (with --all: all files were graded), 1 not all points, 2 usage, no such
file, or no compiler, 74 the CSV file could not be written, 130 Ctrl-C)";

struct CheckCommand {
  std::string which, file, student, all, csv;
  std::string device = "cpu";
  bool json = false, quiet = false, force = false, step = false;
};

void require_device(const std::string& device) {
  if (device == "cpu") return;
  const Gpus found = find_gpus();
  require_input(found.usable(), "--device cuda: ", found.problem,
                "; use --device cpu, which runs the same checks, or ", found.cure);
}

void require_flags(const CheckCommand& command) {
  if (command.which.empty())
    throw UsageError("which exercise? write: zerolab exercise check NN FILE");
  const bool all = !command.all.empty(), one = !all;
  const bool odd =
      std::ranges::any_of(command.student, [](char c) { return std::iscntrl(c) != 0; });
  const std::pair<bool, const char*> refused[] = {
      {odd, "--student: the ID has a line break or another control character; write it without"},
      {all && command.csv.empty(), "--all needs --csv FILE, the file that gets the points"},
      {all && !command.file.empty(), "--all grades the files below DIR; leave FILE out"},
      {all && !command.student.empty(),
       "--student has no effect with --all: the name of each subfolder is the student"},
      {command.step && (all || command.json),
       "--step shows one file's check on the terminal; leave out --all and --json"},
      {all && command.json, "--json is about one file; --all writes --csv FILE"},
      {one && !command.csv.empty(), "--csv has no effect without --all DIR"},
      {one && command.force, "--force has no effect without --all DIR"}};
  for (const auto& [wrong, sentence] : refused)
    if (wrong) throw UsageError(sentence);
}

exercises::GradeOptions grade_options(const CheckCommand& command, const std::string& student) {
  return {.seed = exercises::seed_of(student),
          .device = command.device,
          .interrupted = interrupt_requested};
}

// Sets file or problem. Links are refused: they could lead to a file of somebody else.
void find_file(GradedFile& graded, const std::string& folder, const std::string& name) {
  graded.file.clear();
  std::error_code error;
  std::vector<std::string> sources;
  if (fs::is_symlink(folder, error)) {
    graded.problem = "the folder is a link";
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".cpp") sources.push_back(entry.path().string());
  const std::string expected = (fs::path(folder) / name).string();
  const bool named = fs::exists(fs::symlink_status(expected, error));
  if (named || sources.size() == 1)
    graded.file = named ? expected : sources.front();
  else if (sources.empty())
    graded.problem = "there is no file " + name;
  else
    graded.problem = str("there are ", sources.size(), " .cpp files, but no ", name);
  if (!graded.file.empty() && !fs::is_regular_file(fs::symlink_status(graded.file, error)))
    graded.problem = "it is a link, a folder or a pipe; a plain file is needed";
}

// What FILE means: a file, or the folder that holds it.
GradedFile file_to_grade(const CheckCommand& command, const Exercise& exercise) {
  const std::string name = file_name(exercise);
  std::error_code error;
  GradedFile graded;
  graded.student = command.student;
  graded.file = command.file.empty() ? name : command.file;
  if (fs::is_directory(graded.file, error)) {
    const std::string folder = graded.file;
    find_file(graded, folder, name);
    if (!graded.problem.empty()) graded.problem = folder + ": " + graded.problem;
  } else if (!fs::exists(graded.file, error)) {
    graded.problem =
        str("there is no file '", graded.file, "'", command.file.empty() ? " in this folder" : "",
            "; '", exercise_command("start " + two_digits(exercise) + " DIR"), "' creates ", name);
  }
  return graded;
}

// What to type after a failure; "" if there are no hints and no events.
std::string next_command(const CheckCommand& command, const Exercise& exercise) {
  const bool hints = !hints_file(exercise).empty(),
             step = exercise.records_events() && !command.step;
  return (hints ? exercise_command("hint " + two_digits(exercise)) : "") +
         (hints && step ? ", or " : "") +
         (step ? "repeat the command with --step: it shows the first failed check event by event"
               : "");
}

int check_one(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  require_input(!command.step || exercise.records_events(),
                "--step: the checks of this exercise record no events; those of 05, 06 and 07 do");
  GradedFile graded = file_to_grade(command, exercise);
  // A submission without the file is a grade, too: Gradescope shows why.
  require_input(command.json || graded.problem.empty(), graded.problem);
  require_device(command.device);
  require_compiler(toolchain);
  exercises::GradeOptions options = grade_options(command, command.student);
  Progress progress(int64_t(exercise.checks.size()) + 1, command.quiet);
  if (graded.problem.empty()) progress.item("compiling " + printable_line(graded.file));
  options.on_check = [&](const std::string& check) { progress.item(check); };
  if (graded.problem.empty())
    graded.grade = exercises::grade(exercise, graded.file, toolchain, options);
  progress.clear();
  const std::string text = command.json
                               ? grade_json(exercise, graded)
                               : grade_text(exercise, graded, next_command(command, exercise));
  std::fputs(text.c_str(), stdout);
  if (command.step && graded.grade.first_failure() != nullptr)
    show_first_failure(exercise, graded.grade, toolchain, options);
  else if (command.step)
    std::fputs("zerolab: no check failed, so there is nothing for --step to show\n", stderr);
  return graded.problem.empty() && graded.grade.passed() ? kFine : kFailed;
}

// One for each subfolder, sorted by name. Hidden folders, and those that macOS adds to archives,
// are no students.
std::vector<GradedFile> find_class(const std::string& folder, const std::string& name) {
  std::error_code error;
  std::vector<GradedFile> all;
  require_input(fs::is_directory(folder, error), "--all: there is no folder '", folder, "'");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    GradedFile graded;
    graded.student = entry.path().filename().string();
    if (!entry.is_directory(error) || graded.student.starts_with(".") ||
        graded.student == "__MACOSX")
      continue;
    find_file(graded, entry.path().string(), name);
    all.push_back(graded);
  }
  require_input(!error, "--all: '", folder, "' cannot be read: ", error.message());
  require_input(!all.empty(), "--all: '", folder,
                "' has no subfolder; each student needs one, with ", name, " in it");
  std::ranges::sort(all, {}, &GradedFile::student);
  return all;
}

// Replaces the CSV file after each student: a row that is in it stays, whatever happens later.
void write_rows(const CheckCommand& command, const Exercise& exercise,
                std::span<const GradedFile> done) {
  OutputFile csv(command.csv, "", command.force || done.size() > 1);
  csv.write_text(grades_csv(exercise, done));
  csv.commit();
}

int check_class(const CheckCommand& command, const Exercise& exercise, const Toolchain& toolchain) {
  std::vector<GradedFile> all = find_class(command.all, file_name(exercise));
  const OutputFile writable(command.csv, "", command.force);  // or says early that it is not
  require_device(command.device);
  require_compiler(toolchain);
  const std::string csv = printable_line(command.csv);
  Progress progress(int64_t(all.size()), command.quiet);
  size_t rows = 0;
  try {
    for (GradedFile& graded : all) {
      progress.item(printable_line(graded.student));
      if (interrupt_requested()) throw Interrupted();
      try {  // what the machine does not allow ends the grading: it is no fault of a student
        if (graded.problem.empty())
          graded.grade = exercises::grade(exercise, graded.file, toolchain,
                                          grade_options(command, graded.student));
      } catch (const exercises::UnreadableFile& e) {
        graded.problem = e.what();
      }
      write_rows(command, exercise, {all.data(), rows + 1});
      ++rows;
    }
  } catch (...) {
    progress.clear();
    const std::string kept =
        rows == 0 ? " was not written" : str(" has ", rows, " of ", all.size(), " rows");
    std::fprintf(stderr, "zerolab: grading ended at student '%s'; %s%s\n",
                 printable_line(all[rows].student).c_str(), csv.c_str(), kept.c_str());
    throw;
  }
  progress.clear();
  std::fputs(grades_text(exercise, all).c_str(), stdout);
  std::printf("%s: %s, one per student\n", csv.c_str(), plural(int64_t(rows), "row").c_str());
  return kFine;
}

int check(const CheckCommand& command) {
  require_flags(command);
  const Toolchain toolchain = exercises::find_toolchain();
  const Exercise exercise = find_exercise(command.which, toolchain);
  return command.all.empty() ? check_one(command, exercise, toolchain)
                             : check_class(command, exercise, toolchain);
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
  flags.toggle("-q,--quiet", "no progress", command->quiet);
  flags.group("A class");
  flags.name("--all", "DIR", "grade each subfolder of DIR", command->all);
  flags.name("--csv", "FILE", "the file that gets one row per student", command->csv);
  flags.toggle("--force", "replace the CSV file", command->force);
  flags.footer(kExerciseCheckFooter);
}

}  // namespace zl::cli
