// What a user cannot have is refused before any time is spent: with an exit code, one sentence on
// stderr and nothing on stdout, and no file is changed. texts/refusals.txt lists the command lines:
// one for each kind of refusal of a command, and one for all commands that share a reader.
//
// To record the sentences anew:
//   ZEROLAB_RECORD_TEXTS=1 build/default/tests/unit_tests "each refusal*"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "nn/formats/llmc.h"
#include "stages/predict/clock/machine.h"
#include "tensor/io/safetensors.h"
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
           {"t-zero1.json", "mine"},
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
  REQUIRE(call("plan --model tiny -q --out planned").code == 0);
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

}  // namespace cli
