#include "tutorials/exercises/grader/grade.h"

#include <signal.h>

#include <chrono>
#include <random>
#include <set>

#include "stages/train/trainer.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/sandbox.h"
#include "tutorials/exercises/grader/temporary_folder.h"

namespace zl::exercises {
namespace {

using Clock = std::chrono::steady_clock;

// Of one check [s]. CUDA takes seconds to start.
int patience(const CheckOptions& options) {
  return (options.device == DeviceKind::cuda ? 60 : 10) * (kSanitized ? 10 : 1);
}

constexpr int kRankMissing = 4;  // the exit code with which ranks that wait end the process
constexpr char kNotWritten[] = "not written yet";
constexpr size_t kShown = 8 << 10;  // [B] of a message of the student's code

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Verdict failed(const std::string& meaning, const std::string& details = "") {
  return {.passed = false, .meaning = meaning, .details = details};
}

Verdict too_slow(int seconds) {
  return failed(str("the check ran longer than ", seconds,
                    " s: an endless loop, or ranks that wait for each other"));
}

Verdict killed(int signal) {
  const char* known = sigabbrev_np(signal);
  const std::string name = known ? std::string("SIG") + known : str("signal ", signal);
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
      return failed(
          "the program crashed (" + name + ")",
          "It used memory that it does not have: an index out of range, a tensor that was freed or "
          "never allocated, or a recursion without an end.");
    case SIGABRT:
      return failed("the program was aborted (" + name + ")",
                    "An exception left a function that must not throw, or was thrown while another "
                    "one was handled, or memory of the heap was overwritten.");
    case SIGFPE:
      return failed("the program crashed (" + name + ")", "An integer division by zero.");
    case SIGXCPU: return failed("the ranks together computed for a minute: an endless loop");
  }
  return failed("the program was killed by " + name);
}

// What measure() or the student's code threw.
Verdict thrown(const std::string& error) {
  if (error.starts_with(kNotWritten)) return failed(error.substr(0, kShown));
  if (error == "std::bad_alloc")
    return failed("out of memory", "The program may use 2 GiB. What allocates without an end?");
  const std::string shown = error.size() <= kShown ? error : error.substr(0, kShown) + " …";
  const size_t line = shown.find('\n');
  return failed("the code threw an exception: " + shown.substr(0, line),
                line == std::string::npos ? "" : shown.substr(line + 1));
}

Verdict judged(const Exercise& exercise, const Check& check, const CheckOptions& options,
               const ChildEnd& end, uint64_t key) {
  if (end.timed_out) return too_slow(patience(options));
  if (end.too_much_output)
    return failed("the program printed more than 1 MiB and was stopped",
                  "Print less: the first numbers are enough to see what is wrong.");
  if (end.signal != 0) return killed(end.signal);
  Record record;
  try {
    record = decode_record(end.code == 0 ? end.result : "", key);
  } catch (const InputError&) {
    if (end.code == kRankMissing)
      return failed("a rank did not come to a collective, or does not return from a function",
                    "Find out why the rank that is named does not come. " + end.output);
    if (kSanitized && end.code != 0)
      return failed("the program was stopped by a sanitizer, which says why in the output");
    return failed(str("the program ended before the check was over (exit code ", end.code, ")"),
                  "Do not end it yourself: the check goes on after your function returns.");
  }
  if (const auto sandbox = record.texts.find("sandbox"); sandbox != record.texts.end())
    throw InputError("this machine does not allow the sandbox in which exercises are checked: " +
                     sandbox->second);
  const auto error = record.texts.find("error");
  if (error != record.texts.end()) return thrown(error->second);
  try {
    return exercise.judge(check, options, record);
  } catch (const std::exception& e) {  // the record comes from the student's process
    return failed("the check measured something else than it should", e.what());
  }
}

// Of one check. The child proves with it that the record is the measuring code's.
uint64_t random_key() {
  std::random_device random;
  return (uint64_t(random()) << 32) | random();
}

CheckResult run(const Exercise& exercise, const Check& check, const std::string& program,
                const GradeOptions& options) {
  const auto begin = Clock::now();
  const bool cuda = options.check.device == DeviceKind::cuda;
  const uint64_t key = random_key();
  const ChildEnd end =
      run_child({program, check.name, std::to_string(options.check.seed), cuda ? "cuda" : "cpu"},
                {.time = std::chrono::seconds(patience(options.check)),
                 .input = std::string(reinterpret_cast<const char*>(&key), sizeof key)},
                options.interrupted);
  CheckResult result{.check = check, .output = end.output};
  result.verdict = judged(exercise, check, options.check, end, key);
  result.outcome = result.verdict.passed ? Outcome::passed : Outcome::failed;
  result.seconds = since(begin);
  return result;
}

}  // namespace

int Grade::points() const {
  int sum = 0;
  for (const CheckResult& result : results)
    if (result.outcome == Outcome::passed) sum += result.check.points;
  return sum;
}

int Grade::most_points() const {
  int sum = 0;
  for (const CheckResult& result : results) sum += result.check.points;
  return refused.empty() ? sum : 100;
}

Grade grade(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
            const GradeOptions& options) {
  const TemporaryFolder folder;
  Grade grade{.exercise = exercise.name, .file = file};
  const auto begin = Clock::now();
  const BuiltProgram built = build(exercise, file, toolchain, folder.path(), options.interrupted);
  grade.build_seconds = since(begin);
  grade.refused = built.refused;
  grade.warnings = built.warnings;
  if (!grade.refused.empty()) return grade;

  std::set<std::string> failed_groups;
  bool failed_first = false;
  for (const Check& check : exercise.checks) {
    if (options.interrupted && options.interrupted()) throw Interrupted();
    if (failed_first || failed_groups.count(check.group) != 0) {
      grade.results.push_back({.check = check});
      continue;
    }
    if (options.on_check) options.on_check(check);
    grade.results.push_back(run(exercise, check, built.path, options));
    if (grade.results.back().outcome == Outcome::passed) continue;
    failed_groups.insert(check.group);
    failed_first = options.stop_at_first_failure || check.group == exercise.checks.front().group;
  }
  return grade;
}

uint64_t seed_of(const std::string& student) {
  uint64_t hash = fnv1a(student);
  hash ^= hash >> 31;  // names that differ in their last letter differ in all bits (splitmix64)
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace zl::exercises
