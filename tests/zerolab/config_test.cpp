// zerolab config: findings on stdout, settings with their origin, and a file to start from.

#include "stages/deepspeed/config.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

constexpr const char* kMistakes = R"({
  "train_batch_size": 30,
  "gradient_clipping": "one",
  "optimizer": {"type": "Lamb"},
  "zero_optimisation": {"stage": 2},
  "zero_optimization": {
    "stage": 4,
    "overlap_com": true
  },
  "fp16": {"enabled": true},
  "bf16": {"enabled": true},
  "dump_state": true
})";

}  // namespace

TEST_CASE("config check prints findings in the order of the file, counts them, and ends with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", kMistakes);
  const Finished finished = zerolab({"config", "check", file, "--ranks", "4"});
  CHECK(finished.code == 2);
  CHECK(finished.err.empty());
  const auto found = lines(finished.out);
  const std::vector<std::string> expected = {
      ":2: error: train_batch_size: 30 cannot be split over 4 ranks",
      ":3: error: gradient_clipping: expected a number",
      ":4: error: optimizer.type: expected Adam, AdamW or SGD, not \"Lamb\"",
      ":5: warning: zero_optimisation: unknown key",
      ":7: error: zero_optimization.stage: expected a whole number from 0 to 3, not 4",
      ":8: error: zero_optimization.overlap_com: unknown key; did you mean \"overlap_comm\"?",
      ":11: error: bf16.enabled: fp16 is enabled too",
      ":12: note: dump_state: has no effect"};
  REQUIRE(found.size() == expected.size() + 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(found[i]);
    CHECK(found[i].starts_with(file + expected[i]));
  }
  CHECK(found.back() == "6 errors, 1 warning, 1 note");
}

TEST_CASE("config check ends with 0 on warnings and notes, with --strict only on notes",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string note =
      write_file(folder / "note.json", R"({"train_batch_size": 8, "dump_state": true})");
  const std::string warning =
      write_file(folder / "warning.json", R"({"train_batch_size": 8, "dump_stat": true})");
  CHECK(zerolab({"config", "check", note}).code == 0);
  CHECK(zerolab({"config", "check", note, "--strict"}).code == 0);
  CHECK(zerolab({"config", "check", warning}).code == 0);
  const Finished strict = zerolab({"config", "check", warning, "--strict"});
  CHECK(strict.code == 2);
  CHECK(contains(strict.out,
                 "warning.json:1: error: dump_stat: unknown key; did you mean \"dump_state\"?"));
  CHECK(contains(strict.out, "\n1 error, 0 warnings, 0 notes\n"));
  CHECK(zerolab({"config", "check", note, "--ranks", "3"}).code == 2);
  CHECK(zerolab({"config", "check", note, "--ranks", "3", "--set", "train_batch_size=9"}).code ==
        0);
}

TEST_CASE("config check says what is no configuration at all on stdout, and ends with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  struct Row {
    std::string file, begin;
  };
  const std::string list = write_file(folder / "list.json", "[1]"),
                    half = write_file(folder / "half.json", "{\n\"a\": "),
                    empty = write_file(folder / "empty.json", "");
  const std::string hjson = write_file(folder / "h.json", "{\n\n  stage: 2\n}"),
                    large = write_file(folder / "large.json", std::string(10'000'000, 'x'));
  std::string braces, binary;
  for (int i = 0; i < 50'000; ++i) braces += "{\"a\":", binary += char(i % 251);
  const std::string deep = write_file(folder / "deep.json", braces),
                    bytes = write_file(folder / "bytes.json", binary),
                    nan = write_file(folder / "nan.json",
                                     "\xEF\xBB\xBF{\"gradient_clipping\":\nNaN}"),
                    huge = write_file(folder / "huge.json", "{\"gradient_clipping\": 1e400}");
  for (const Row& row :
       {Row{list, list + ":1: error: a configuration is one JSON object { … }, not an array"},
        Row{half, half + ":2: error: the text ends inside the object that line 1 opens"},
        Row{empty, empty + ": error: the file is empty"},
        Row{hjson, hjson + ":3: error: expected a key in double quotes, not \"stage\""},
        Row{folder / "none.json", (folder / "none.json") + ": error: the configuration "},
        Row{folder.path(), folder.path() + ": error: the file is a folder"},
        Row{"/dev/zero", "/dev/zero: error: the file is larger than 256 KiB"},
        Row{large, large + ": error: the file is larger than 256 KiB"},
        Row{deep, deep + ":1: error: more than 64 brackets are open here"},
        Row{bytes, bytes + ":1: error: this is not text"},
        Row{nan, nan + ":2: error: expected true, false, null, a number or a string"},
        Row{huge, huge + ":1: error: \"1e400\" is too large for a number"}}) {
    const Finished finished = zerolab({"config", "check", row.file});
    CAPTURE(row.file, finished.out);
    CHECK(finished.code == 2);
    CHECK(finished.err.empty());
    CHECK(finished.out.starts_with(row.begin));
    CHECK(lines(finished.out).size() == 2);
    CHECK(finished.seconds < 5);  // a busy machine; else far below 1
    const Finished train = zerolab({"train", "--config", row.file});
    CHECK(train.code == 2);
    CHECK(lines(train.err).size() == 1);
  }
}

TEST_CASE("config check --json is one document", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished =
      zerolab({"config", "check", write_file(folder / "ds.json", kMistakes), "--json"});
  CHECK(finished.code == 2);
  const auto document = nlohmann::json::parse(finished.out);
  CHECK((document["schema"] == 1 && document["command"] == "config check" &&
         document["ok"] == false && document["ranks"] == 4));
  CHECK((document["errors"] == 6 && document["warnings"] == 1 && document["notes"] == 1));
  REQUIRE(document["findings"].size() == 8);
  CHECK(document["findings"][0]["severity"] == "error");
  CHECK(document["findings"][0]["key"] == "train_batch_size");
  CHECK(document["findings"][0]["where"].get<std::string>().ends_with("ds.json:2"));
}

TEST_CASE("config explain prints every setting with its origin, with a file and without",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(
      folder / "ds.json",
      "{\"train_batch_size\": 32,\n\"zero_optimization\": {\"stage\": 3}, \"dump_state\": true}");
  const Finished finished =
      zerolab({"config", "explain", file, "--ranks", "8", "--set", "zerolab.seed=5"});
  CHECK(finished.code == 0);
  CHECK(contains(finished.out, "derived: 32 / 8 ranks / 1"));
  CHECK(contains(finished.out, file + ":2"));
  CHECK(contains(finished.out, "--set zerolab.seed"));
  CHECK(contains(finished.err, file + ":2: note: dump_state: "));
  const auto document = nlohmann::json::parse(zerolab({"config", "explain", file, "--json"}).out);
  bool clipping = false;
  for (const auto& setting : document["settings"]) {
    if (setting["key"] != "gradient_clipping") continue;
    clipping = true;
    CHECK((setting["value"] == 1 && setting["default"] == 0 &&
           setting["deepspeed_default"] == 1.0 && setting["defaults_differ"] == true));
  }
  CHECK(clipping);
  CHECK(contains(zerolab({"config", "explain"}).out, "gradient_clipping"));
  const Finished wrong = zerolab({"config", "explain", file, "--ranks", "3"});
  CHECK((wrong.code == 2 && wrong.out.empty()));
  CHECK(
      contains(wrong.err, "zerolab: the settings have 1 error, named above; nothing is explained"));
}

TEST_CASE("config init prints a file that is what it says", "[zerolab]") {
  const ScratchFolder folder;
  int n = 0;
  for (const std::string stage : {"ddp", "zero1", "zero2", "zero3"}) {
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      for (const bool offload : {false, true}) {
        CAPTURE(stage, precision, offload);
        std::vector<std::string> arguments = {"config", "init",        "--stage",
                                              stage,    "--precision", precision};
        if (offload) arguments.push_back("--offload");
        const Finished init = zerolab(arguments);
        if (offload && stage == "ddp") {
          CHECK((init.code == 2 && init.out.empty()));
          continue;
        }
        REQUIRE(init.code == 0);
        CHECK(contains(init.out, "// Stage "));
        const std::string file = write_file(folder / (std::to_string(n++) + ".json"), init.out);
        const auto loaded = zl::load_config({file, {}, 4});
        CHECK(loaded.findings.empty());
        CHECK(name(*loaded.config.stage) == stage);
        CHECK(loaded.config.precision == (precision == "fp16"   ? zl::Dtype::f16
                                          : precision == "bf16" ? zl::Dtype::bf16
                                                                : zl::Dtype::f32));
        CHECK((loaded.config.offload_optimizer == zl::OffloadDevice::cpu) == offload);
        const Finished check = zerolab({"config", "check", file, "--strict", "--ranks", "3"});
        CHECK((check.code == 0 && check.out == "0 errors, 0 warnings, 0 notes\n"));
      }
    }
  }
  CHECK(n == 21);
}

TEST_CASE("config init replaces no file unless told to", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = folder / "ds.json";
  CHECK(zerolab({"config", "init", "--out", file}).code == 0);
  const std::string first = read_file(file);
  const Finished again = zerolab({"config", "init", "--stage", "zero3", "--out", file});
  CHECK(again.code == 2);
  CHECK(contains(again.err, "exists; --force replaces it"));
  CHECK(read_file(file) == first);
  CHECK(zerolab({"config", "init", "--stage", "zero3", "--out", file, "--force"}).code == 0);
  CHECK(read_file(file) != first);
}

TEST_CASE(
    "config init leaves the old file as it is when the new one cannot be written, and writes to "
    "files only",
    "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", "mine");
  const Finished full =
      shell("trap '' XFSZ; ulimit -f 0; \"$ZEROLAB\" config init --force --out '" + file + "'");
  CHECK(full.code == 74);
  CHECK(contains(full.err, "cannot be written: File too large"));
  CHECK(read_file(file) == "mine");
  CHECK(files_in(folder.path()) == std::vector<std::string>{"ds.json"});
  const Finished device = zerolab({"config", "init", "--force", "--out", "/dev/full"});
  CHECK(device.code == 2);
  CHECK(contains(device.err, "'/dev/full' is a device or a pipe"));
}

TEST_CASE("config explain refuses an empty name, and keeps its promise of one JSON document",
          "[zerolab]") {
  const Finished empty = zerolab({"config", "explain", ""});
  CHECK((empty.code == 2 && empty.out.empty()));
  CHECK(contains(empty.err, "the name is empty"));
  const Finished wrong = zerolab({"config", "explain", "--json", "--set", "zerolab.steps=0"});
  CHECK(wrong.code == 2);
  const auto document = nlohmann::json::parse(wrong.out);
  CHECK((document["ok"] == false && document["settings"].empty() &&
         document["findings"].size() == 1));
  CHECK(nlohmann::json::parse(
            zerolab({"config", "explain", "--json", "/nowhere/ds.json"}).out)["ok"] == false);
  CHECK(nlohmann::json::parse(zerolab({"config", "explain", "--json"}).out)["ok"] == true);
}

TEST_CASE("config reads from a pipe", "[zerolab]") {
  const Finished piped =
      shell("\"$ZEROLAB\" config init --stage zero1 | \"$ZEROLAB\" config check /dev/stdin");
  CHECK((piped.code == 0 && piped.out == "0 errors, 0 warnings, 0 notes\n"));
}

TEST_CASE("config teaches: help, examples, exit codes, and the nearest command", "[zerolab]") {
  for (const char* command : {"check", "explain", "init"}) {
    CAPTURE(command);
    const Finished help = zerolab({"config", command, "--help"});
    CHECK(help.code == 0);
    CHECK((contains(help.out, "Examples:") && contains(help.out, "Exit codes:")));
    for (const std::string& line : lines(help.out)) CHECK(line.size() <= 120);
  }
  CHECK(zerolab({"config"}).err ==
        "zerolab: config needs a command: check, explain, init\nTry 'zerolab config --help'.\n");
  CHECK(zerolab({"config", "chek"}).err ==
        "zerolab: config has no command 'chek'; did you mean 'check'?\nTry 'zerolab config "
        "--help'.\n");
  CHECK(zerolab({"config", "check"}).err ==
        "zerolab: which file? write: zerolab config check FILE\nTry 'zerolab config check "
        "--help'.\n");
  CHECK(zerolab({"config", "explain", "--keys"}).out.starts_with("### Top level\n\n| key |"));
}

}  // namespace cli
