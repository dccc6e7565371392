// Every file that a user names, in every command that reads one: whatever is in it, the program
// ends with one sentence and exit code 2 (1 where it verifies), and never calls it a bug of its
// own.

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/zerolab/command.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

// A command, and the file in the scratch folder that it reads.
struct Reader {
  std::string line, file;
  bool may_pass =
      false;  // some of these contents are no mistake: keys that are ignored, half a line
};

std::string repeated(const std::string& text) {
  std::string all;
  for (int i = 0; i < 100'000; ++i) all += text;
  return all;
}

// What is in place of the file: contents, or a folder, a pipe or nothing.
const std::vector<std::pair<std::string, std::string>>& contents() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"empty", ""},
      {"nothing but null", "null"},
      {"a list", "[1]"},
      {"another object", "{\"a\": 1}"},
      {"a number beyond double", "{\"step\": 1e999, \"schema\": 1e999}"},
      {"a number beyond 64 bits", "{\"step\": 99999999999999999999, \"schema\": 1}"},
      {"NaN", "{\"step\": NaN}"},
      {"wrong types", "{\"schema\": 1, \"command\": [], \"step\": \"x\", \"zerolab\": {}}"},
      {"100,000 brackets", repeated("[")},
      {"100,000 closed brackets", repeated("[") + repeated("]")},
      {"100,000 objects", repeated("{\"step\":")},
      {"bytes that are not UTF-8", "{\"a\": \"\xff\"}"},
      {"zeros", std::string(100, '\0')},
      {"a pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"}};
  return all;
}

void check_no_bug(const Reader& reader, const std::string& what) {
  const Finished finished = call(reader.line);
  CAPTURE(reader.line, reader.file, what, finished.err.substr(0, 500));
  const bool damaged = finished.code == 1 && contains(reader.line, "verify");  // its check failed
  CHECK((finished.code == 2 || damaged || (finished.code == 0 && reader.may_pass)));
  for (const char* part : {"bug in zerolab", "unforeseen", "exception", "basic_"})
    CHECK_FALSE(contains(finished.err + finished.out, part));
}

}  // namespace

TEST_CASE("a file with anything in it ends in a sentence and exit code 2", "[zerolab]") {
  const ScratchFolder folder;
  const std::string run = folder / "run", step = run + "/step-00000002", any = folder / "any",
                    small = " --model tiny --ranks 1 -q";
  REQUIRE(call("train --steps 3 --save-every 2 --out " + run + small).code == 0);
  for (const Reader& reader :
       {Reader{"train --steps 1 --config " + any + small, any, true},
        {"config check " + any, any, true},
        {"plan --model tiny --machine " + any, any},
        {"compare --steps 1 --stages ddp --baseline " + any + small, any},
        {"train --init-from " + any + ".safetensors", any + ".safetensors"},
        {"train --init-from " + any + ".json", any + ".json"},
        {"model info " + any + ".bin", any + ".bin"},
        {"checkpoint info " + step, step + "/checkpoint.json"},
        {"checkpoint verify " + step, step + "/checkpoint.json"},
        {"checkpoint verify " + step, step + "/model.safetensors"},
        {"train --steps 4 --resume " + step + small, step + "/checkpoint.json"},
        {"report " + run, run + "/report.json"},
        {"report " + run, run + "/metrics.jsonl", true}}) {
    const bool there = fs::exists(reader.file);
    const std::string kept = there ? read_file(reader.file) : "";
    for (const auto& [what, text] : contents()) {
      write_file(reader.file, text);
      check_no_bug(reader, what);
    }
    fs::remove(reader.file);
    check_no_bug(reader, "nothing");
    fs::create_directory(reader.file);
    check_no_bug(reader, "a folder");
    fs::remove(reader.file);
    REQUIRE(::mkfifo(reader.file.c_str(), 0600) == 0);
    check_no_bug(reader, "a pipe");
    fs::remove(reader.file);
    if (there) write_file(reader.file, kept);
  }
}

}  // namespace cli
