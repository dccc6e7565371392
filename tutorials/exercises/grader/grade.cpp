#include "tutorials/exercises/grader/grade.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tensor/io/small_file.h"
#include "tensor/random.h"
#include "tutorials/exercises/grader/child_process.h"

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kKilled[] =
    "the judge was killed (SIGKILL) before the check was over: by the program, or because the "
    "machine has no memory left";

// Arrays of a size that is known at run time, and large ones, would be memory that is not counted.
// The library's stages keep their names, so that they do not take the place of the student's. A
// main() that was forgotten in the file does not take the place of ours. A file to complete uses
// few of its parameters.
constexpr char kFlags[] =
    "-O1 -Wall -Wextra -Wno-unused-parameter -Werror=vla -Werror=frame-larger-than=16384 "
    "-fdiagnostics-color=never "
    "-Dmain=students_main -Dstage_zero1=students_stage -Dstage_zero2=students_stage "
    "-Dstage_zero3=students_stage";
constexpr int kShownLines = 25;
constexpr std::chrono::seconds kPatience{60};
constexpr int64_t kLargestObject = 32 << 20, kLargestProgram = 512 << 20;  // [B]
constexpr char kMoreSpace[] = "free some space, or set TMPDIR to a folder on another disk";
constexpr char kSource[] = "student.cpp", kObject[] = "student.o", kProgram[] = "program";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

std::string read_text(const std::string& file) try {
  return read_small_file(file, {"solution", 1 << 20});
} catch (const InputError& e) {
  throw UnreadableFile(e.what());
}

// The compiler's first messages, with the student's file name instead of student.cpp.
std::string first_lines(const std::string& text, const std::string& file) {
  std::istringstream in(replaced(text, std::string(kSource) + ":", file + ":"));
  std::string all, line;
  int lines = 0;
  while (lines <= kShownLines && std::getline(in, line))
    if (++lines <= kShownLines) all += line + "\n";
  if (lines > kShownLines) all += "… (the first messages matter most: repair them first)\n";
  return all;
}

int64_t code_lines(const std::string& text) {
  int64_t lines = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(" \t\r");
    lines += first != line.npos && line.compare(first, 2, "//") != 0;
  }
  return lines;
}

std::string failure(const ChildEnd& end, const std::string& file) {
  if (end.timed_out)
    return str("the compiler took longer than ", kPatience.count(), " s and was stopped");
  for (const char* sign : {"File size limit", "File too large", "memory exhausted", "out of memory",
                           "bad_alloc", "std::length_error"})
    if (end.output.find(sign) != std::string::npos)
      return str("the compiler ran out of memory, or its result is larger than ",
                 kLargestObject >> 20, " MiB: a constant or a template is too large");
  return "it does not compile\n" + first_lines(end.output, file);
}

using Words = std::vector<std::string>;  // of one command

Words operator+(Words all, const Words& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Into `folder`. Returns the program, or "" and says why in grade.refused. Throws as grade() does.
std::string build(const Exercise& exercise, const Toolchain& toolchain, const std::string& folder,
                  const std::function<bool()>& interrupted, Grade& grade) {
  // A copy in a folder without headers: quotes would find those beside the file first. The same
  // name each time lets ccache find what it has compiled before.
  const std::string text = read_text(grade.file);
  grade.lines = code_lines(text);
  std::ofstream source(fs::path(folder) / kSource, std::ios::binary);
  require_input(bool(source << text << std::flush), "cannot write to ", folder, "; ", kMoreSpace);
  ChildLimits limits{.time = kPatience, .memory = 4l << 30, .file = kLargestObject};
  limits.folder = folder, limits.interrupted = interrupted;
  std::istringstream flags(kFlags);
  const Words compile = Words{toolchain.compiler} + toolchain.flags +
                        Words(std::istream_iterator<std::string>(flags), {}) +
                        Words{"-c", "-o", kObject, kSource};
  // A full disk is not the student's fault, unless the file itself has the words.
  const auto run = [&](const Words& command) {
    const ChildEnd end = run_child(command, limits);
    for (const char* full : {"No space left on device", "Disk quota exceeded"})
      require_input(end.output.find(full) == text.npos || text.find(full) != text.npos,
                    "the compiler says '", full, "'; ", kMoreSpace);
    return end;
  };
  ChildEnd end;
  if (!toolchain.launcher.empty()) end = run(toolchain.launcher + compile);
  // Without ccache if that is what fails, as where its folder cannot be written.
  if (toolchain.launcher.empty() || end.output.find("ccache: error") != std::string::npos)
    end = run(compile);
  if (end.failed()) {
    grade.refused = failure(end, grade.file);
    return "";
  }
  grade.warnings = first_lines(end.output, grade.file);

  Words link{toolchain.compiler, "-o", kProgram, kObject};
  for (const std::string& item : toolchain.link)
    link.push_back(replaced(item, "{exercise}", exercise.name));
  limits.file = kLargestProgram;
  end = run(link);
  if (!end.failed()) return folder + "/" + kProgram;
  const bool twice = end.output.find("multiple definition") != std::string::npos;
  grade.refused =
      str("it compiles, but does not link: ",
          twice ? "it defines a function that the library has; put it into an unnamed namespace\n"
                : "a function of the contract is missing, or has other parameters or another "
                  "namespace\n",
          first_lines(end.output, grade.file));
  return "";
}

}  // namespace

// A word that is none of these is read as the first one.
NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::skipped, "skipped"},
                                       {Outcome::passed, "passed"},
                                       {Outcome::failed, "failed"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckResult, outcome, meaning, details, output, event, seconds,
                                   costs)

int Grade::points() const {
  int sum = 0;
  for (const CheckResult& result : results)
    if (result.outcome == Outcome::passed) sum += result.check.points;
  return sum;
}

const CheckResult* Grade::first_failure() const {
  for (const CheckResult& result : results)
    if (result.outcome == Outcome::failed) return &result;
  return nullptr;
}

Grade grade(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
            const GradeOptions& options) {
  const TemporaryFolder folder;
  Grade grade{.exercise = exercise.name, .file = file};
  const auto begin = std::chrono::steady_clock::now();
  const std::string program = build(exercise, toolchain, folder.path(), options.interrupted, grade);
  grade.build_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (program.empty()) return grade;

  std::vector<std::string> judge = {toolchain.judge, program, exercise.name.substr(0, 2),
                                    std::to_string(options.seed), options.device};
  if (options.stop_at_first_failure) judge.push_back("--abort");
  const std::string junit = folder.path() + "/junit.xml";
  if (options.junit)
    judge.insert(judge.end(), {"--reporter", "junit::out=" + junit, "--name",
                               exercise.name + " " + exercise.version});
  const ChildEnd end = run_child(judge, {.time = std::chrono::minutes(20),
                                         .file = 512 << 20,
                                         .folder = folder.path(),
                                         .interrupted = options.interrupted});
  if (options.junit) grade.junit = (std::stringstream() << std::ifstream(junit).rdbuf()).str();
  for (const Check& check : exercise.checks) grade.results.push_back({.check = check});
  size_t done = 0;
  std::istringstream lines(end.output);
  for (std::string line; std::getline(lines, line);)
    if (const Json json = Json::parse(line, nullptr, false); json.is_object())
      for (CheckResult& result : grade.results)
        if (result.check.name == json.value("check", "")) json.get_to(result), ++done;
  const bool killed = end.signal == SIGKILL,
             stopped = options.stop_at_first_failure && end.code != kNotStarted;
  for (size_t i = done; i < grade.results.size() && killed; ++i)
    grade.results[i].outcome = Outcome::failed, grade.results[i].meaning = kKilled;
  require_input(killed || stopped || done == exercise.checks.size(), "the judge ended after ", done,
                " of ", exercise.checks.size(), " checks (exit code ", end.code, ", signal ",
                end.signal, "): ", end.output.substr(end.output.rfind("}\n") + 1, 500));
  return grade;
}

void require_compiler(const Toolchain& toolchain) {
  const TemporaryFolder folder;
  const ChildEnd end = run_child(
      {toolchain.compiler, "-shared", "-x", "c++", "/dev/null", "-o", folder.path() + "/empty.so"},
      {});
  require_input(!end.failed(), "the compiler ", toolchain.compiler,
                ", which compiles the exercises, does not work here: ", end.output.substr(0, 300),
                "Install it (apt: g++), or see that PATH has it");
}

void show_first_failure(const Exercise& exercise, const Grade& graded, const Toolchain& toolchain,
                        const GradeOptions& options) {
  const CheckResult* failed = graded.first_failure();
  require_input(failed != nullptr, "no check failed, so there is nothing for --step to show");
  const TemporaryFolder folder;
  Grade again{.exercise = exercise.name, .file = graded.file};
  const std::string program = build(exercise, toolchain, folder.path(), {}, again);
  require_input(!program.empty(), graded.file, ": ", again.refused);
  std::printf("\n%s, %s:\n", failed->check.name.c_str(),
              failed->event > 0 ? "from where it fails"
                                : "from the first event; the check does not know where");
  std::fflush(stdout);
  const ChildEnd end =
      run_child({program, exercise.name.substr(0, 2), std::to_string(options.seed), options.device,
                 failed->check.name, std::to_string(failed->event)},
                {.time = std::chrono::hours(1000), .terminal = true});
  require_input(!end.failed(), "the program of the check ended with ",
                end.signal != 0 ? str("signal ", end.signal) : str("exit code ", end.code));
}

uint64_t seed_of(const std::string& student) {
  std::random_device random;
  uint64_t hash = student.empty() ? (uint64_t(random()) << 32) | random() : fnv1a(student);
  hash ^= hash >> 31;  // names that differ in their last letter differ in all bits (splitmix64)
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace zl::exercises
