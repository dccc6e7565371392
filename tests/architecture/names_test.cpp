// Names and words: files say what is inside, tests say what they claim and carry their folder's
// tag, and headers use the field's words.

#include <catch2/catch_test_macros.hpp>
#include <map>
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
  for (const TestCase& one : test_cases(file))
    if (std::regex_match(one.name, coded))
      findings.push_back(
          finding(file, one.line, "the name holds a code that no list in the tree explains"));
  return findings;
}

// Words of an older version of this code for which the field has a word.
std::vector<std::string> check_words(const File& file) {
  static const std::regex retired(
      "\\b(the walk|whoever|culprit|in its stead|what became of|mailbox)\\b", std::regex::icase);
  std::vector<std::string> findings;
  if (is_test(file) || !is_header(file)) return findings;
  int line = 0;
  std::smatch match;
  for (const std::string& comment : split_lines(comments_only(file.text)))
    if (++line; std::regex_search(comment, match, retired))
      findings.push_back(finding(file, line, "'" + match.str() + "' is not a word of the field"));
  return findings;
}

}  // namespace

TEST_CASE("files and tests have right names and tags, and headers the field's words",
          "[architecture]") {
  for (const auto check : {check_file_name, check_tags, check_test_names, check_words})
    CHECK(findings_of(check) == "");
}

TEST_CASE("banned file names are found as words, not as parts of words", "[architecture]") {
  for (const char* banned : {"tensor/util.h", "tensor/string_utils.cpp", "stages/common.h",
                             "nn/memory_manager.h", "nn/common_mode.h"})
    CHECK(check_file_name({banned, ""}).size() == 1);
  for (const char* right : {"dist/communicator.h", "tests/architecture/utilization_test.cpp"})
    CHECK(check_file_name({right, ""}).empty());
}

TEST_CASE("a missing, a wrong and a second folder tag are noticed", "[architecture]") {
  for (const auto& [tags, findings] : std::map<std::string, size_t>{{"[nn]", 0},
                                                                    {"[nn][slow]", 0},
                                                                    {"[.by_hand]", 0},
                                                                    {"[slow]", 1},
                                                                    {"[nn][dist]", 1},
                                                                    {"[dist]", 2}})
    CHECK(check_tags({"tests/nn/gpt_test.cpp", "TEST_CASE(\"a\", \"" + tags + "\") {}\n"}).size() ==
          findings);
}

TEST_CASE("a code in the name of a test is noticed, a type or a number is not", "[architecture]") {
  for (const auto& [name, wrong] :
       std::map<std::string, bool>{{"F07 parameters of no elements", true},
                                   {"N39: decay groups", true},
                                   {"the promise E1 holds", true},
                                   {"F32, F16 and BF16 are read", false},
                                   {"with N ranks and 3 micro-batches", false},
                                   {"A 2 x 2 matrix", false}})
    CHECK(check_test_names({"tests/nn/gpt_test.cpp", "TEST_CASE(\"" + name + "\",\n \"[nn]\") {}"})
              .size() == wrong);
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
