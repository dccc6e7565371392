#include "tutorials/exercises/judge/judge.h"

#include <signal.h>

#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <catch2/reporters/catch_reporter_streaming_base.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "stages/train/trainer.h"
#include "tutorials/exercises/grader/child_process.h"

namespace zl::exercises {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kResultClosed = 74;      // the exit code of program_main.cpp for that
constexpr int kRankMissing = 4;        // the exit code with which ranks that wait end the process
constexpr size_t kShown = 8 << 10;     // [B] of a text of the student's code
constexpr int64_t kMemory = 2l << 30;  // [B] of address space
// Sanitizers reserve more address space than there is memory, and are slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Of this process: one judge judges one program.
struct Judging {
  CheckOptions options;
  std::vector<std::string> words;  // PROGRAM NUMBER SEED DEVICE
  std::string group, first_group;
  std::set<std::string> failed_groups;
  Json verdict;  // of the check that runs, as it is printed
};

Judging& judging() {
  static Judging one;
  return one;
}

// SIGTERM is blocked: Catch2 would end the judge at once, and the program would go on.
bool is_terminated() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1;
}

std::string shortened(const std::string& text) {
  return text.size() <= kShown ? text : text.substr(0, kShown) + " …";
}

[[noreturn]] void fail_of_signal(int signal, int64_t most_written) {
  const char* const name = sigabbrev_np(signal);
  const std::string by = str(" (", name ? str("SIG", name) : str("signal ", signal), ")");
  if (signal == SIGXFSZ)
    fail(str("the program wrote more than ", most_written >> 20, " MiB and was stopped"),
         "Print less: the first numbers are enough to see what is wrong.");
  if (signal == SIGABRT)
    fail("the program was aborted" + by,
         "An exception left a function that must not throw, or was thrown while another one was "
         "handled, or memory of the heap was overwritten, or a std::thread was destroyed before "
         "join().");
  if (signal == SIGSEGV)
    fail("the program crashed" + by,
         "It used memory that it does not have: an index out of range, a tensor that was freed or "
         "never allocated, or a recursion without an end.");
  if (signal == SIGFPE) fail("the program crashed" + by, "An integer division by zero.");
  fail("the program was killed" + by);
}

[[noreturn]] void fail_of_error(const std::string& error, int64_t most_memory) {
  if (error.starts_with("not written yet")) fail(shortened(error));
  if (error == "std::bad_alloc")
    fail("out of memory", str(most_memory > 0 ? "The program may use 2 GiB. " : "",
                              "What allocates without an end?"));
  const std::string shown = shortened(error) + "\n";
  const size_t line = shown.find('\n');
  fail("the code threw an exception: " + shown.substr(0, line), shown.substr(line + 1));
}

// A student cannot raise --timeout.
std::string without_advice(std::string text) {
  const size_t at = std::min(text.find(". If "), text.size());
  return text.erase(at, std::min(text.find('\n', at), text.size()) - at);
}

Record record_of(const ChildEnd& end, const ChildLimits& limits) {
  if (end.timed_out)
    fail(str("the check ran longer than ", limits.time.count(),
             " s: an endless loop, or ranks that wait for each other"));
  if (end.signal != 0) fail_of_signal(end.signal, limits.file);
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  if (end.code == kRankMissing && says(end.output, "communication failed"))
    fail("a rank does not make a call that others wait for: it loops, waits, or does not return",
         "Find out why the rank that is named does not come. " +
             without_advice(shortened(end.output)));
  Record record;
  try {
    const Json json = Json::from_msgpack(end.code == 0 ? end.result : "");
    record = {.numbers = json.at("numbers"), .texts = json.at("texts")};
  } catch (const Json::exception&) {
    if (end.code == kResultClosed)
      fail("the program closed file descriptor 3, to which its observations are written",
           "descriptor 3 was closed: close only what you have opened.");
    if (end.code == 0 && !end.result.empty())
      fail("more than one process wrote its observations: did it call fork()?");
    fail(str("the program ended before the check was over (exit code ", end.code, ")"),
         "Do not end it yourself: the check goes on after your function returns.");
  }
  for (const auto& [key, text] : record.texts)  // "did not match": of a send or receive
    if (says(text, " within ") && says(text, "--timeout") && !says(text, " did not match "))
      fail("a rank does not come to a collective in time: it loops, waits, or is slow",
           without_advice(text));
  if (record.texts.contains("error")) fail_of_error(record.texts["error"], limits.memory);
  return record;
}

// In a folder for this check. Where it cannot be started no check has failed: the judge ends with
// the reason.
ChildEnd run_program(ChildLimits& limits) {
  std::vector<std::string> words = judging().words;
  words.push_back(judging().options.check);
  try {
    const TemporaryFolder folder(0777);
    limits.folder = folder.path();
    return run_child(words, limits);
  } catch (const Interrupted&) {
    std::_Exit(130);  // Catch2 would go on with the next check
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(kNotStarted);
  }
}

// Writes a line of JSON for each check that begins or ends, and with --list-tests for each that
// there is.
class Lines final : public Catch::StreamingReporterBase {
 public:
  using StreamingReporterBase::StreamingReporterBase;
  static std::string getDescription() { return "what 'zerolab exercise check' reads"; }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    StreamingReporterBase::testCaseStarting(info);
    Judging& all = judging();
    all.options.check = info.name;
    all.group = tags_of(info).group;
    if (all.first_group.empty()) all.first_group = all.group;
    all.verdict = {{"check", info.name}, {"meaning", ""}, {"details", ""},
                   {"event", 0},         {"output", ""},  {"costs", Json::array()}};
    begin_ = Clock::now();
  }
  void assertionEnded(const Catch::AssertionStats& stats) override {
    Json& verdict = judging().verdict;
    if (stats.assertionResult.isOk() || verdict["meaning"] != "") return;
    verdict["meaning"] = "the check measured something else than it should";
    verdict["details"] = std::string(stats.assertionResult.getMessage());
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    Judging& all = judging();
    const bool skipped = stats.totals.testCases.skipped > 0,
               passed = !skipped && stats.totals.testCases.allPassed();
    if (!passed && !skipped) all.failed_groups.insert(all.group);
    all.verdict["outcome"] = skipped ? "skipped" : passed ? "passed" : "failed";
    all.verdict["seconds"] = std::chrono::duration<double>(Clock::now() - begin_).count();
    print(all.verdict);
    StreamingReporterBase::testCaseEnded(stats);
  }
  void listTests(const std::vector<Catch::TestCaseHandle>& tests) override {
    for (const Catch::TestCaseHandle& test : tests) {
      const Tags tags = tags_of(test.getTestCaseInfo());
      for (const std::string& exercise : tags.exercises)
        print({{"exercise", exercise},
               {"name", test.getTestCaseInfo().name},
               {"group", tags.group},
               {"points", tags.points}});
    }
  }

 private:
  struct Tags {
    std::vector<std::string> exercises;  // their numbers
    std::string group;
    int points = 0;
  };
  static Tags tags_of(const Catch::TestCaseInfo& info) {
    Tags tags;
    for (const Catch::Tag& tag : info.tags)
      if (const std::string text(tag.original); text.ends_with(" points"))
        tags.points = std::atoi(text.c_str());
      else if (std::isdigit(text[0]))
        tags.exercises.push_back(text);
      else
        tags.group = text;
    return tags;
  }
  void print(const Json& json) {
    m_stream << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }

  Clock::time_point begin_;
};

CATCH_REGISTER_REPORTER("lines", Lines)

}  // namespace

const CheckOptions& options() { return judging().options; }

void fail(const std::string& meaning, const std::string& details, int64_t event) {
  judging().verdict.update({{"meaning", meaning}, {"details", details}, {"event", event}});
  FAIL(meaning << "\n" << details);
  throw std::logic_error("a failed check goes on");
}

Record observe() {
  Judging& all = judging();
  if (all.failed_groups.contains(all.first_group) || all.failed_groups.contains(all.group))
    SKIP("an earlier check failed");
  const bool cuda = all.options.device == DeviceKind::cuda;
  ChildLimits limits{.time = std::chrono::seconds((cuda ? 60 : 10) * (kSanitized ? 10 : 1)),
                     .memory = cuda || kSanitized ? 0 : kMemory,
                     .file = (cuda ? 256l : 64l) << 20,
                     .student = true,
                     .interrupted = is_terminated};
  const ChildEnd end = run_program(limits);
  all.verdict["output"] = shortened(end.output);
  const Record record = record_of(end, limits);
  if (record.texts.contains("costs")) all.verdict["costs"] = record.rows<Costs>("costs");
  SUCCEED();  // Catch2's JUnit reporter omits a case without an assertion
  return record;
}

}  // namespace zl::exercises

// zerolab-judge PROGRAM NUMBER SEED DEVICE [options of Catch2], or zerolab-judge --list-tests.
int main(int argc, char** argv) {
  using namespace zl::exercises;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  Catch::Session session;
  std::vector<const char*> words = {argv[0], "--reporter", "lines"};
  std::string tag;
  if (argc >= 5) {
    Judging& all = judging();
    all.words.assign(argv + 1, argv + 5);
    all.options = check_options(argv + 2);
    tag = std::string("[") + argv[2] + "]";
    words.push_back(tag.c_str());
  }
  for (int i = argc >= 5 ? 5 : 1; i < argc; ++i) words.push_back(argv[i]);
  if (session.applyCommandLine(int(words.size()), words.data()) != 0) return 2;
  const int failed = session.run();
  return failed == 0 ? 0 : 1;
}
