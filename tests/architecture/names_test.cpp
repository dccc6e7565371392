// Names and words: files say what is inside, tests say what they claim and carry their folder's
// tag, and headers use the field's words.

#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

std::vector<std::string> check_file_name(const File& file) {
  static const std::regex banned("(.*[/_])?(utils?|helpers?|managers?|misc|common)[_.].*");
  if (!std::regex_match(file.path, banned)) return {};
  return {finding(file, 1, "the name says nothing about what is inside")};
}

// The folder below tests/ that a test file belongs to, or "" for other files.
std::string tested_folder(const File& file) {
  const size_t slash = file.path.find('/', 6);
  const bool test = is_test(file) && slash != std::string::npos;
  return test && file.path.ends_with("_test.cpp") ? file.path.substr(6, slash - 6) : "";
}

std::vector<std::string> check_tags(const File& file) {
  const std::string own = tested_folder(file);
  std::vector<std::string> findings;
  if (own.empty()) return findings;
  for (const TestCase& one : test_cases(file)) {
    if (one.tags.find("[.") != std::string::npos) continue;  // hidden: another case runs it
    for (const std::string folder : {"tensor", "autograd", "nn", "optim", "dist", "nccl", "mpi",
                                     "stages", "tutorials", "zerolab", "cuda", "draw", "recording",
                                     "report", "fuzz", "golden", "random", "architecture"}) {
      const bool has = one.tags.find("[" + folder + "]") != std::string::npos;
      if (has != (own == folder))
        findings.push_back(finding(file, one.line, "must carry the tag [" + own + "] only"));
    }
  }
  return findings;
}

// Codes of lists that are not in the tree: "F07 parameters of …", "N39: decay …", "E1".
std::vector<std::string> check_test_names(const File& file) {
  static const std::regex coded("[A-Z][0-9]{1,2}[: ].*|.*\\b[EFHMN][0-9]\\b.*");
  std::vector<std::string> findings;
  for (const TestCase& one : test_cases(file)) {
    if (std::regex_match(one.name, coded))
      findings.push_back(
          finding(file, one.line, "the name holds a code that no list in the tree explains"));
  }
  return findings;
}

// Words of an older version of this code for which the field has a word.
std::vector<std::string> check_words(const File& file) {
  static const std::regex retired(
      "\\b(the walk|whoever|culprit|in its stead|what became of|mailbox)\\b", std::regex::icase);
  std::vector<std::string> findings;
  if (is_test(file) || !is_header(file)) return findings;
  const auto comments = split_lines(comments_only(file.text));
  for (size_t i = 0; i < comments.size(); ++i) {
    std::smatch match;
    if (std::regex_search(comments[i], match, retired))
      findings.push_back(finding(file, static_cast<int>(i) + 1,
                                 "'" + match.str() + "' is not a word of the field"));
  }
  return findings;
}

}  // namespace

TEST_CASE("every file name says what is inside", "[architecture]") {
  CHECK(findings_of(check_file_name) == "");
}

TEST_CASE("each test case carries the tag of its folder and no other folder's", "[architecture]") {
  CHECK(findings_of(check_tags) == "");
}

TEST_CASE("the name of every test is a sentence without a code", "[architecture]") {
  CHECK(findings_of(check_test_names) == "");
}

TEST_CASE("comments of headers use the field's words", "[architecture]") {
  CHECK(findings_of(check_words) == "");
}

TEST_CASE("banned file names are found as words, not as parts of words", "[architecture]") {
  CHECK(check_file_name({"tensor/util.h", ""}).size() == 1);
  CHECK(check_file_name({"tensor/string_utils.cpp", ""}).size() == 1);
  CHECK(check_file_name({"stages/common.h", ""}).size() == 1);
  CHECK(check_file_name({"nn/memory_manager.h", ""}).size() == 1);
  CHECK(check_file_name({"nn/common_mode.h", ""}).size() == 1);
  CHECK(check_file_name({"dist/communicator.h", ""}).empty());
  CHECK(check_file_name({"tests/architecture/utilization_test.cpp", ""}).empty());
}

TEST_CASE("a missing, a wrong and a second folder tag are noticed", "[architecture]") {
  const auto wrong = [](const std::string& tags) {
    return check_tags({"tests/nn/gpt_test.cpp", "TEST_CASE(\"a\", \"" + tags + "\") {}\n"}).size();
  };
  CHECK(wrong("[nn]") == 0);
  CHECK(wrong("[nn][slow]") == 0);
  CHECK(wrong("[.by_hand]") == 0);
  CHECK(wrong("[slow]") == 1);
  CHECK(wrong("[nn][dist]") == 1);
  CHECK(wrong("[dist]") == 2);
}

TEST_CASE("a code in the name of a test is noticed, a type or a number is not", "[architecture]") {
  const auto wrong = [](const std::string& name) {
    const std::string text = "TEST_CASE(\"" + name + "\",\n \"[nn]\") {}\n";
    return check_test_names({"tests/nn/gpt_test.cpp", text}).size() == 1;
  };
  CHECK(wrong("F07 parameters of no elements"));
  CHECK(wrong("N39: decay groups"));
  CHECK(wrong("the promise E1 holds"));
  CHECK(!wrong("F32, F16 and BF16 are read"));
  CHECK(!wrong("with N ranks and 3 micro-batches"));
  CHECK(!wrong("A 2 x 2 matrix"));
}

TEST_CASE("retired words are found in comments of headers only", "[architecture]") {
  const std::string comment = "// Whoever waits.\n";
  CHECK(check_words({"dist/work.h", comment}) ==
        std::vector<std::string>{"dist/work.h:1: 'Whoever' is not a word of the field"});
  CHECK(check_words({"autograd/tape.h", "int a;  // the walk is over\n"}).size() == 1);
  CHECK(check_words({"autograd/tape.h", "// a walker\nint mailbox;\n"}).empty());
  CHECK(check_words({"dist/work.cpp", comment}).empty());
  CHECK(check_words({"tests/dist/wait.h", comment}).empty());
}

}  // namespace architecture
