// The text of a configuration: comments and trailing commas, --set, and text that is not a
// configuration.

#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "stages/deepspeed/json_text.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::check, config_case::load, config_case::says, config_case::with;
using zl::sentence_of, zl::str;

namespace {

// The error of a text that cannot be read; "" if it can be read.
std::string refusal(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string sentence = sentence_of([&] { load(text); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(seconds.count() < 5);  // a sanitizer on a busy machine; else far below 1
  CHECK(sentence.find('\n') == std::string::npos);
  for (const char* of_the_library :
       {"json.exception", "syntax error", "parsing", "last read", "literal", "<U+", "<EOF>"})
    CHECK(sentence.find(of_the_library) == std::string::npos);
  return sentence;
}

std::string repeated(int times, const std::string& s) {
  std::string all;
  for (int i = 0; i < times; ++i) all += s;
  return all;
}

bool refused(const std::string& text, const std::string& part) {
  const std::string sentence = refusal(text);
  UNSCOPED_INFO(sentence);
  return !sentence.empty() && sentence.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("comments and trailing commas are allowed, and lines are counted correctly", "[stages]") {
  const auto loaded = load(R"(// one
# two
{ /* three
     four */ "train_batch_size": 8, # five: "//" in a string stays
  "zerolab": {"data": "a // b # c /* d */", "no_weight_decay": ["*.bias", ],},
  "zerolab_": 1,
}
// end)");
  CHECK(loaded.config.micro_batch == 2);
  CHECK(loaded.config.data == "a // b # c /* d */");
  CHECK(loaded.config.optimizer.no_weight_decay.size() == 1);
  CHECK(says(loaded, "ds.json:6: warning: zerolab_: ", "did you mean \"zerolab\"?"));
  // Windows line ends and a byte order mark; the line is that of the key.
  CHECK(
      says(load("\xEF\xBB\xBF{\r\n\"train_batch_size\": 8,\r\n\"gradient_clipping\": -1\r\n}\r\n"),
           "ds.json:3: error: gradient_clipping: "));
  CHECK(says(load("{\"train_batch_size\": 8,\n\"gradient_clipping\":\n\n-1}"),
             "ds.json:2: error: gradient_clipping: "));
}

TEST_CASE("a duplicate key is an error with both lines", "[stages]") {
  CHECK(refused(
      "{\"train_batch_size\": 8,\n\"zero_optimization\": {\"stage\": 1,\n\"reduce_scatter\": "
      "true,\n\"stage\": 2}}",
      ":4: duplicate key zero_optimization.stage; the first is at "));
  CHECK(refused("{\"a\": 1,\n\"b\": 1,\n\"a\": 1}", ":3: duplicate key a; the first is at "));
  CHECK(load(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}, )"
             R"("scheduler": {"type": "WarmupLR"}})")
            .findings.empty());
}

TEST_CASE("--set wins over the file, creates objects, and the last one wins", "[stages]") {
  const std::string file =
      R"({"train_batch_size": 8, "zero_optimization": {"stage": 1, "reduce_bucket_size": 7}})";
  const auto loaded = load(
      file, {"zero_optimization.stage=2", "optimizer.params.lr=3e-4", "zerolab.data=my text.txt",
             "optimizer.type=adamw", "zero_optimization.stage=3", "train_batch_size=16"});
  CHECK(loaded.findings.empty());
  CHECK(loaded.config.stage == zl::StageKind::zero3);
  CHECK((loaded.config.reduce_bucket_size == 7 && loaded.config.optimizer.lr == 3e-4 &&
         loaded.config.data == "my text.txt"));
  CHECK(loaded.config.micro_batch == 4);
  CHECK(load(file).config.stage == zl::StageKind::zero1);
  CHECK(load("", {R"(zero_optimization={"stage": 2})"}).config.stage == zl::StageKind::zero2);
}

TEST_CASE("a malformed --set is an error among the others", "[stages]") {
  for (const char* set : {"a", "", "=3", ".a=3", "a.=3", "a..b=3"}) {
    CAPTURE(set);
    CHECK(says(load("", {set}), "--set ", "expected KEY=VALUE"));
  }
  CHECK(says(load("{\n\"train_batch_size\": 30}", {"train_batch_size.x=3"}),
             "--set train_batch_size.x: error: \"train_batch_size\" is 30 in ", ", not an object"));
  check(
      {{"zerolab.steps=many",
        "error: expected a whole number of at least 1, not the string \"many\""},
       {"gradient_clipping=NaN", "error: expected a number of at least 0, not the string \"NaN\""},
       {"gradient_clipping=1e400",
        "error: expected a number of at least 0, not the string \"1e400\""},
       {"optimizer.params.betas=[0.9, 0.95", "error: the value:1: the text ends inside "},
       {"fp16={enabled: true}", "error: the value:1: this is no JSON: \"enabled\""},
       {R"(fp16= {"enabled": true, "enabled": true})",
        "error: the value:1: duplicate key enabled"}});
  CHECK(with("zerolab.data=a[1]").config.data == "a[1]");
  CHECK(says(load("", {repeated(200, "a.") + "b=1"}), "--set \"a.a.", "levels"));
}

TEST_CASE("text that is not a JSON object is refused with one sentence and its line", "[stages]") {
  const std::pair<const char*, const char*> table[] = {
      {" \n", " is empty"},
      {"// nothing", " is empty"},
      {"[1]", ":1: a configuration is one JSON object { … }, not an array"},
      {"\n3", ":2: a configuration is one JSON object { … }, not 3"},
      {"\"abc\"", "not the string \"abc\""},
      {"null", "not null"},
      {"{\n\"a\": {\n\"b\": 1", ":3: the text ends inside the object that line 2 opens"},
      {"{\n\"a\":\n[1,", ":3: the text ends inside the array that line 3 opens"},
      {"{\"a\": [1,", "the text ends inside the array that line 1 opens"},
      {"{\"a\"", "the text ends inside the object that line 1 opens"},
      {"{\"a\":", "the text ends inside the object that line 1 opens"},
      {"{\"a\": 1 /* x", "the text ends inside the object that line 1 opens"},
      {"{} /* x", ":1: this is no JSON: \"/*\""},
      {"{\"a\" 1}", "this is no JSON: \"1\""},
      {"{\"a\": \"x\n\"}", ":1: this string does not end on its line"},
      {"{\"a\": 1\n\"b\": 2}",
       ":2: this is no JSON: \"\\\"b\\\"\" (keys and strings are in double"},
      {"{} {}", "this is no JSON: \"{\""},
      {"{\"a\": 1,,}", "this is no JSON: \",\""},
      {"{\n  stage: 2}", ":2: this is no JSON: \"stage\""},
      {"{\"a\": abc}", "this is no JSON: \"abc\""},
      {"{\"a\": True}", "this is no JSON: \"True\""},
      {"{\"a\": None}", "this is no JSON: \"None\""}};
  for (const auto& [text, part] : table) {
    CAPTURE(text);
    CHECK(refused(text, part));
  }
}

TEST_CASE("numbers that are not JSON are named", "[stages]") {
  for (const std::string value :
       {"NaN", "Infinity", "-Infinity", "01", ".5", "+1", "0x10", "1.", "1e", "--1", "1e5abc"})
    CHECK(refused("{\"a\": " + value + "}", ":1: this is no JSON: \"" + value));
  for (const std::string& value :
       {std::string("1e400"), std::string("-1e400"), std::string(400, '1')})
    CHECK(refused("{\"b\": \"is " + value + "\",\n\"a\": " + value + "\n}",
                  "ds.json:2: a number is out of range: \"" + value.substr(0, 9)));
}

TEST_CASE("junk is refused with one sentence within a second", "[stages]") {
  std::string bytes;
  for (int i = 1; i < 256; ++i) bytes += char(i);
  CHECK(refused(repeated(100'000, "{"), "more than 64 brackets are open here"));
  CHECK(refused(repeated(100'000, "/*"), "this is no JSON"));
  CHECK(refused(repeated(50'000, "{\"a\":"), "more than 64 brackets are open here"));
  CHECK(refused(repeated(100'000, "["), "more than 64 brackets are open here"));
  CHECK(refused("{\"a\": \"" + std::string(10'000'000, 'x') + "\"}", " is larger than 256 KiB"));
  CHECK(refused(std::string("{\0}", 3), "it has zero bytes"));
  CHECK(refused(bytes, ""));
  CHECK(refused("{\"a\": \"\xff\xfe\"}", "this is no JSON: "));
  CHECK(refused("{\"a\": \"\\ud800\"}", "this is no JSON: "));
  for (const char* text : {"}", "{,}", "[1,,2]", "{\"a\": \"\\x\"}", "nul", "'a'", "\xef\xbb"})
    CHECK(refused(text, ""));
  CHECK(refusal("{\"a\": [" + repeated(120'000, "1,") + "]}").empty());
  CHECK(refused("{" + repeated(10'000, "\"a\":1,") + "}", "duplicate key"));
  std::string keys;
  for (int i = 0; i < 10'000; ++i) keys += str("\"k", i, "\":1,");
  CHECK(load("{" + keys + "}").findings.size() == 10'001);
}

TEST_CASE("a file that cannot be read is refused with the reason", "[stages]") {
  const auto reason = [](const std::string& path) {
    return sentence_of([&] { zl::load_config({path, {}, 1}); });
  };
  CHECK(reason("/nowhere/ds.json") ==
        "the configuration /nowhere/ds.json cannot be read: No such file or directory");
  CHECK(reason("/tmp") == "the configuration /tmp cannot be read: Is a directory");
  CHECK(reason("/dev/null") ==
        "/dev/null is empty: a configuration is one JSON object, at least {}");
  // A pipe is read while it delivers, and refused after two silent seconds.
  const zl::ScratchFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(reason(pipe) == pipe + " gave nothing for 2 seconds");
  std::thread writer([&] { std::ofstream(pipe) << R"({"train_batch_size": 8})"; });
  const auto loaded = zl::load_config({pipe, {}, 4});
  writer.join();
  CHECK(loaded.config.micro_batch == 2);
}
