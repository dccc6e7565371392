// zerolab config: findings on stdout, settings with their origin, and a file to start from.

#include "stages/deepspeed/config.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
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
const std::string kNothingFound = "0 errors, 0 warnings, 0 notes\n";

}  // namespace

TEST_CASE("config check prints findings in the order of the file, counts them, and ends with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", kMistakes);
  const Finished finished = call("config check --ranks 4 " + file);
  CHECK((finished.code == 2 && finished.err.empty()));
  const auto found = lines(finished.out);
  const Words expected = {
      ":2: error: train_batch_size: 30 is not a multiple of 4 ranks. Use 28 or 32",
      ":3: error: gradient_clipping: expected a number",
      ":4: error: optimizer.type: expected one of \"Adam\", \"AdamW\", \"SGD\", not the string "
      "\"Lamb\"",
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

  const Finished json = call("config check --json " + file);
  CHECK(json.code == 2);
  const Json document = Json::parse(json.out);
  CHECK((document["schema"] == 1 && document["command"] == "config check" &&
         document["ok"] == false && document["ranks"] == 4));
  CHECK((document["errors"] == 6 && document["warnings"] == 1 && document["notes"] == 1));
  REQUIRE(document["findings"].size() == 8);
  const Json& first = document["findings"][0];
  CHECK((first["severity"] == "error" && first["key"] == "train_batch_size"));
  CHECK(first["where"].get<std::string>().ends_with("ds.json:2"));
}

TEST_CASE("config check ends with 0 on warnings and notes, with --strict only on notes",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string note = "config check " +
                           write_file(folder / "note.json",
                                      R"({"train_batch_size": 8, "dump_state": true})"),
                    warning = "config check " +
                              write_file(folder / "warning.json",
                                         R"({"train_batch_size": 8, "dump_stat": true})");
  for (const std::string& line :
       {note, note + " --strict", warning, note + " --ranks 3 --set train_batch_size=9"})
    CHECK(call(line).code == 0);
  const Finished strict = call(warning + " --strict");
  CHECK(strict.code == 2);
  check_says(strict.out,
             {"warning.json:1: error: dump_stat: unknown key; did you mean \"dump_state\"?",
              "\n1 error, 0 warnings, 0 notes\n"});
  CHECK(call(note + " --ranks 3").code == 2);
}

TEST_CASE("config check says what is no configuration at all on stdout, and ends with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  // Each kind of text that is none: tests/stages/deepspeed.
  const std::string half = write_file(folder / "half.json", "{\n\"a\": "),
                    large = write_file(folder / "large.json", std::string(10'000'000, 'x'));
  for (const auto& [file, begin] : std::map<std::string, std::string>{
           {half, ":2: error: the text ends inside the object that line 1 opens"},
           {large, ": error: the file is larger than 256 KiB"},
           {folder / "none.json", ": error: the configuration "},
           {folder.path(), ": error: the configuration "}}) {
    const Finished finished = call("config check " + file), train = call("train --config " + file);
    CAPTURE(file, finished.out);
    CHECK((finished.code == 2 && finished.err.empty() && train.code == 2));
    CHECK(finished.out.starts_with(file + begin));
    CHECK((lines(finished.out).size() == 2 && lines(train.err).size() == 1));
  }
}

TEST_CASE("config explain prints every setting with its origin, with a file and without",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(
      folder / "ds.json",
      "{\"train_batch_size\": 32,\n\"zero_optimization\": {\"stage\": 3}, \"dump_state\": true}");
  const Finished finished = call("config explain --ranks 8 --set zerolab.seed=5 " + file);
  CHECK(finished.code == 0);
  check_says(finished.out, {"derived: 32 / 8 ranks / 1", file + ":2", "--set zerolab.seed"});
  CHECK(contains(finished.err, file + ":2: note: dump_state: "));
  int clipping = 0;
  const Json explained = Json::parse(document("config explain " + file));
  for (const Json& setting : explained["settings"]) {
    if (setting["key"] != "gradient_clipping") continue;
    ++clipping;
    CHECK((setting["value"] == 1 && setting["default"] == 0 &&
           setting["deepspeed_default"] == 1.0 && setting["defaults_differ"] == true));
  }
  CHECK(clipping == 1);
  CHECK(contains(call("config explain").out, "gradient_clipping"));
  check_refused(call("config explain --ranks 3 " + file),
                "zerolab: the settings have 1 error, named above; nothing is explained");
}

TEST_CASE("config explain keeps its promise of one JSON document", "[zerolab]") {
  CHECK(Json::parse(document("config explain"))["ok"] == true);
  CHECK(Json::parse(call("config explain --json /nowhere/ds.json").out)["ok"] == false);
  const Finished wrong = call("config explain --json --set zerolab.steps=0");
  CHECK(wrong.code == 2);
  const Json json = Json::parse(wrong.out);
  CHECK((json["ok"] == false && json["settings"].empty() && json["findings"].size() == 1));
}

TEST_CASE("the file to start from of configuration.md has no finding, with its comments too",
          "[zerolab]") {
  const std::string page = read_file(ZEROLAB_SOURCE_DIR "/tutorials/reference/configuration.md");
  const size_t begin = page.find("    {\n");
  std::string text = page.substr(begin, page.find("\n    }\n", begin) + 7 - begin);
  const ScratchFolder folder;
  for (const std::string mark : {"", "// \"scheduler", "// \"offload"}) {
    if (!mark.empty()) text.replace(text.find(mark), 3, "");
    const std::string file = write_file(folder / "ds.json", text);
    const Finished check = call("config check --strict --ranks 3 " + file);
    CHECK((check.code == 0 && check.out == kNothingFound));
    CHECK(zl::load_config({file, {}, 4}).config.stage == zl::StageKind::zero3);
  }
}

}  // namespace cli
