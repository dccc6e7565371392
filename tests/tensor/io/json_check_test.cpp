// What check_json() refuses: all that would end the library's parser, or the program, later.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tensor/io/small_file.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

std::string refusal(const std::string& text, bool comments = false) {
  return sentence_of([&] { check_json(text, "a.json", comments); });
}

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text, end;
  for (int i = 0; i < depth; ++i) text += open, end += close;
  return text + (close == "}" ? "1" : "") + end;
}

}  // namespace

TEST_CASE("what check_json takes, the library's parser takes too", "[tensor]") {
  for (const std::string text :
       {"1", "null", "\"\"", "[]", "{}", " [1, -2.5e-300, true] ", "{\"a\": {\"a\": [{\"a\": 0}]}}",
        "[18446744073709551616, 1e-999]", "{\"\\u0061\": 1, \"b\": \"\xc3\xa9\"}"}) {
    CAPTURE(text);
    CHECK(refusal(text).empty());
    CHECK(is_json(text));
    CHECK_NOTHROW(nlohmann::json::parse(text));
  }
}

TEST_CASE("an error of JSON is named with its byte and line", "[tensor]") {
  CHECK(refusal("{\n\"a\": one}") == "a.json is not valid JSON: error at byte 8, line 2");
  CHECK(refusal("{\"a\": 1") ==
        "a.json is not valid JSON: error at byte 8, line 1; the text ends too early");
  CHECK(refusal("[1e999]") == "a.json is not valid JSON: a number is out of range: '1e999'");
  for (const char* text : {"", " ", "[1] 2", "[01]", "[NaN]", "{'a': 1}", "[1,]", "\"\xff\"",
                           "[-1e999]", "// comment\n1"}) {
    CAPTURE(text);
    CHECK(refusal(text).starts_with("a.json is not valid JSON: "));
    CHECK_FALSE(is_json(text));
  }
  CHECK(refusal("// comment\n1", true).empty());
}

TEST_CASE("a name that occurs twice in one object is refused, in two objects it is not",
          "[tensor]") {
  CHECK(refusal(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})").empty());
  CHECK(refusal(R"({"a": 1, "a": 1})") == "a.json: the name \"a\" occurs twice");
  CHECK(refusal(R"([{"b": {"a": 1, "\u0061": 1}}])") == "a.json: the name \"a\" occurs twice");
}

TEST_CASE("brackets are counted, however many there are", "[tensor]") {
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"[", "]"}, {"{\"a\":", "}"}}) {
    CHECK(refusal(nested(kJsonDepth, open, close)).empty());
    CHECK(refusal(nested(kJsonDepth + 1, open, close)) == "a.json is nested deeper than 64 levels");
    CHECK(refusal(nested(1'000'000, open, "")) == "a.json is nested deeper than 64 levels");
  }
}

}  // namespace zl
