#include "tutorials/exercises/grader/grade.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tensor/random.h"
#include "tutorials/exercises/grader/build.h"
#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/temporary_folder.h"

namespace zl::exercises {
namespace {

using Json = nlohmann::json;

constexpr char kKilled[] =
    "the judge was killed (SIGKILL) before the check was over: by the program, or because the "
    "machine has no memory left";

}  // namespace

// A word that is none of these is read as the first one.
NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::skipped, "skipped"},
                                       {Outcome::passed, "passed"},
                                       {Outcome::failed, "failed"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckResult, outcome, meaning, details, output, event, seconds)

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
