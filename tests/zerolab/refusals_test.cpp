// What a user cannot have is refused before any time is spent: with an exit code, one sentence on
// stderr and nothing on stdout, and no file is changed. texts/refusals.txt lists the command lines:
// one for each kind of refusal of a command, and one for all commands that share a reader.
//
// To record the sentences anew:
//   ZEROLAB_RECORD_TEXTS=1 build/default/tests/unit_tests "each refusal*"
//
// Every file that a user names, in every command that reads one: whatever is in it, the program
// ends with one sentence and exit code 2 (1 where it verifies), and never calls it a bug of its
// own.

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "nn/formats/llmc.h"
#include "stages/predict/clock/machine.h"
#include "tensor/io/safetensors.h"
#include "tests/paths.h"
#include "tests/tensor/io/safetensors_case.h"
#include "tests/zerolab/command.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

const std::string kFile = ZEROLAB_SOURCE_DIR "/tests/zerolab/texts/refusals.txt";

// "$ COMMAND" and the line behind it: the exit code, and stderr with " / " for its line ends.
struct Refusal {
  std::string command, text;
};

// In `expected`, which may be a recorded line, "…" covers what differs between machines.
bool matches(const std::string& text, const std::string& expected) {
  static const std::regex special(R"([\\^$.|?*+(){}\[\]])"), open("…");
  const std::string pattern = std::regex_replace(expected, special, "\\$&");
  return std::regex_match(text, std::regex(std::regex_replace(pattern, open, "[\\s\\S]*")));
}

// Little-endian uint16 tokens.
std::string tokens(const std::vector<int>& values) {
  std::string bytes;
  for (const int v : values) bytes += {char(v & 255), char(v >> 8)};
  return bytes;
}

// A model of 2 layers, 3 heads and width 12, with the heads in its file and as PyTorch's programs
// save it: with a prefix, and without the number of heads.
void write_models() {
  const zl::GptConfig config{.layers = 2, .heads = 3, .width = 12, .block_size = 7, .vocab = 50};
  zl::Gpt model(config);
  const auto values_of = [&](const std::string& name) {
    for (const zl::Parameter& p : model.parameters())
      if (p.name == name) return std::vector<float>(size_t(zl::numel(p.shape)), 0.5f);
    throw std::invalid_argument(name);
  };
  zl::save_safetensors_weights("ours.safetensors", config, values_of);
  zl::test::write_with_prefix("theirs.safetensors", model.parameters(), values_of);
  write_file("cut.safetensors", read_file("ours.safetensors").substr(0, 3000));
}

// Files in the working folder that the refused commands name.
void write_fixtures() {
  std::vector<int> ids(200, 7);
  write_file("good.bin", tokens(ids));
  ids[123] = 300;
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"short.txt", "abc"},
           {"ids.bin", tokens(ids)},
           {"text.txt", std::string(200, 'x')},
           {"half.json", "{\"a\": "},
           {"batch.json", "{\"train_batch_size\": 4}"},
           {"file", "x"},
           {"plan.json", "{\"command\": \"plan\"}"},
           {"schema99.json", "{\"command\": \"compare\", \"schema\": 99}"},
           {"no_ranks.json", "{\"command\": \"compare\", \"schema\": 1}"}})
    write_file(name, content);
  for (const char* name : {"folder", "with/metrics", "report/none", "report/half", "report/schema",
                           "class/ann", "empty_class"})
    fs::create_directories(name);
  write_file("with/metrics/metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":3}\n");
  write_file("report/half/report.json", "{\"schema\": 1, \"kind\": ");
  write_file("report/schema/report.json", "{\"schema\": 2}");
  write_file("class/ann/05_zero1.cpp", "int x;\n");
  const std::string l4 = zl::machine_json(zl::find_machine("l4")), key = "\"launch_seconds\"";
  write_file("broken.json", std::string(l4).replace(l4.find(key), key.size(), "\"launch\""));
  write_models();
  REQUIRE(train(4, "--out saved --save-every 2").code == 0);
  REQUIRE(train(5, "--out weights --n-layer 1 --block-size 16").code == 0);
  REQUIRE(call("compare --model tiny --steps 2 --ranks 3 -q --stages ddp --out compared").code ==
          0);
}

// While it lives, the tests' working folder is a new one.
struct WorkingFolder {
  ScratchFolder scratch;
  fs::path before = fs::current_path();
  WorkingFolder() { fs::current_path(scratch.path()); }
  ~WorkingFolder() { fs::current_path(before); }
};

// Names and sizes of all files below the working folder; a changed file has another time.
std::string state() {
  std::vector<std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator("."))
    all.push_back(entry.path().string() +
                  (entry.is_regular_file()
                       ? " " + std::to_string(entry.file_size()) + " " +
                             std::to_string(entry.last_write_time().time_since_epoch().count())
                       : ""));
  std::ranges::sort(all);
  std::string text;
  for (const std::string& one : all) text += one + "\n";
  return text;
}

// Runs the command by a shell, so that quotes and variables mean what they mean there.
std::string result_of(const std::string& command, Finished& finished) {
  const bool program = contains(command, "$ZEROLAB");
  finished = shell(program ? command : "exec \"$ZEROLAB\" " + command);
  std::string err = finished.err;
  if (err.ends_with("\n")) err.pop_back();
  return std::to_string(finished.code) + " " + std::regex_replace(err, std::regex("\n"), " / ");
}

void check_form(const Finished& finished) {
  CHECK(finished.code > 0);
  CHECK(finished.out.empty());
  CHECK((finished.err.starts_with("zerolab: ") || contains(finished.err, "\nzerolab: ")));
  CHECK(lines(finished.err).size() <= 2);
  for (const char* word : {"lease", "ailed to", "bug in zerolab", "json.exception", "step 1"})
    CHECK_FALSE(contains(finished.err, word));  // nor please
}

}  // namespace

TEST_CASE("each refusal has its exit code and its sentence, and changes no file", "[zerolab]") {
  const char* wanted = std::getenv("ZEROLAB_RECORD_TEXTS");
  const bool record = wanted != nullptr && wanted == std::string("1");
  const WorkingFolder folder;
  write_fixtures();
  const std::string files = state();
  std::string recorded;
  int refusals = 0;
  std::vector<std::string> all = lines(read_file(kFile));
  for (size_t i = 0; i < all.size(); ++i) {
    recorded += all[i] + "\n";
    if (!all[i].starts_with("$ ")) continue;
    REQUIRE(i + 1 < all.size());
    ++refusals, ++i;
    const std::string command = all[i - 1].substr(2);
    CAPTURE(command);
    Finished finished;
    const std::string text = result_of(command, finished);
    CAPTURE(text);
    check_form(finished);
    const bool same = matches(text, all[i]);
    recorded += (same ? all[i] : text) + "\n";
    if (!same && !record) FAIL_CHECK("expected: " << all[i]);
    const std::string now = state();
    if (now != files) FAIL("a file was changed or made:\n" << now << "before:\n" << files);
  }
  CHECK(refusals > 200);
  if (record && recorded != read_file(kFile)) {
    write_file(kFile, recorded);
    WARN("recorded " << kFile);
  }
  CHECK_FALSE(matches("2 zerolab: no", "2 zerolab: yes"));
  CHECK(matches("2 only 5 GiB. / Try", "2 only …. / Try"));
}

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
