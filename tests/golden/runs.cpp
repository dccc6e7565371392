#include "tests/golden/runs.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace golden {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFile = std::string(ZEROLAB_SOURCE_DIR) + "/tests/golden/runs.txt";

const std::map<std::string, std::string> kBinaries = {
    {"zerolab", ZEROLAB_BINARY},
    {"on_fake", ZEROLAB_BINARY_ON_FAKE},
    {"on_emulator", ZEROLAB_BINARY_ON_EMULATOR},
    {"own_model", std::string(ZEROLAB_TUTORIALS) + "/own_model"},
};

// Times, prose, and what the command says. Which rank is the first to be out of memory is chance.
bool left_out(const std::string& key, const std::string& path) {
  static const std::set<std::string> keys = {
      "communication_time", "tokens_per_second", "files", "data", "model", "settings", "schema"};
  const bool time = key.find("seconds") < key.size() && key != "communication_seconds";
  return time || keys.count(key) == 1 || (key == "rank" && path.ends_with("out_of_memory"));
}

void add_items(const Json& value, const std::string& path, bool keys, Items& to) {
  if (!value.is_structured() || value.empty()) {
    to[path] = keys ? value.type_name() : value.dump();
    return;
  }
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) {
      add_items(item, path + "[" + (keys ? "" : key) + "]", keys, to);
    } else if (keys || !left_out(key, path)) {
      add_items(item, path + (path.empty() ? "" : ".") + key, keys, to);
    }
  }
}

// ", loss 5.25, norm 1.75, peak 918324 B, sent 370736 B": of the last step (of the last stage); of
// rank 0 in each stage; of each stage.
std::string first_numbers(const Json& document) {
  std::string step, peaks, sent;
  for (const Json& stage : document.value("stages", Json{document})) {
    std::string key = "peak_total_bytes";
    if (!stage.contains(key)) key = "predicted_" + key;
    if (stage.contains(key)) peaks += " " + stage[key][0].dump();
    int64_t bytes = 0;
    for (const Json& row : stage.value("communication", Json::array())) {
      key = row.contains("sent_bytes_per_rank") ? "sent_bytes_per_rank"
                                                : "predicted_sent_bytes_per_rank";
      bytes += row.value(key, int64_t(0));
    }
    if (stage.contains("communication")) sent += " " + std::to_string(bytes);
    if (stage.contains("loss"))
      step = ", loss " + stage["loss"].back().dump() + ", norm " + stage["grad_norm"].back().dump();
  }
  return step + (peaks.empty() ? "" : ", peak" + peaks + " B") +
         (sent.empty() ? "" : ", sent" + sent + " B");
}

// Of what a program prints for people: its numbers, by line.
Json numbers(const std::string& text) {
  static const std::regex number("\\b[0-9]+(\\.[0-9]+)?\\b");
  Json found = Json::array();
  for (const std::string& line : cli::lines(text)) {
    std::string all;
    for (std::sregex_iterator it(line.begin(), line.end(), number), end; it != end; ++it)
      all += it->str() + " ";
    found.push_back(all);
  }
  return found;
}

std::string shell_line(const std::string& command, const std::string& flags) {
  std::istringstream words(command);
  std::string line = "env";
  bool program = false;  // whether it was among the words so far
  for (std::string word; words >> word;) {
    const auto found = program ? kBinaries.end() : kBinaries.find(word);
    if (found != kBinaries.end()) program = true, word = found->second;
    line += " '" + word + "'";
  }
  REQUIRE(program);
  return line + flags;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string text(const Items& items) {
  std::string all;
  for (const auto& [name, value] : items) all.append(name).append(" = ").append(value).append("\n");
  return all;
}

// "" if the bits of this build are those that were recorded; else why they are not.
std::string other_bits_expected() {
  const std::string version = cli::shell(std::string(ZEROLAB_BINARY) + " --version").out;
  if (cli::contains(version, "x86-64-v3") || cli::contains(version, "x86-64-v4")) return "";
  return "the bits were recorded with kernels for x86-64-v3 and x86-64-v4, which round a product "
         "and a sum once; this is " +
         version;
}

}  // namespace

std::vector<Run> frozen() {
  std::vector<Run> runs;
  for (const std::string& line : cli::lines(cli::read_file(kFile))) {
    if (line.starts_with("  ")) {
      const size_t bar = line.find(" | ");
      REQUIRE((bar < line.size() && !runs.empty()));
      runs.back().name = line.substr(2, bar - 2);
      runs.back().gave = line.substr(bar + 3);
    } else {
      runs.push_back({.name = "", .command = line, .gave = ""});
    }
  }
  return runs;
}

Result result(const std::string& json, bool keys) {
  const Json document = Json::parse(json);
  Result found;
  add_items(document, "", keys, found.items);
  found.gave = hash(text(found.items));
  if (document.contains("exit code")) found.gave += ", exit " + document["exit code"].dump();
  if (!keys) found.gave += first_numbers(document);
  return found;
}

Result measure(const Run& run) {
  const cli::ScratchFolder folder;
  const std::string out = folder / "run";
  const bool own_model = run.command == "own_model";
  const bool trains = (run.command + " ").find(" train ") != std::string::npos;
  const cli::Finished finished =
      cli::shell(shell_line(run.command, std::string(own_model ? "" : " --json -q") +
                                             (trains ? " --out '" + out + "'" : "")));
  Json document = Json::parse(finished.out, nullptr, false);
  if (own_model) document = {{"lines", numbers(finished.out)}};
  if (!document.is_object())
    document = finished.out.empty() ? Json::object() : Json{{"stdout", "no JSON document"}};
  document["exit code"] = finished.code;
  if (trains && finished.code == 0) {
    for (const std::string& line : cli::lines(cli::read_file(out + "/metrics.jsonl")))
      document["metrics.jsonl"].push_back(Json::parse(line));
    document["model.safetensors"] = hash(cli::read_file(out + "/model.safetensors"));
  }
  return result(document.dump(), run.name.starts_with("keys of"));
}

bool recording() { return variable("ZEROLAB_RECORD_GOLDEN") == "1"; }

void check_or_record() {
  if (const std::string why = other_bits_expected(); !why.empty()) SKIP(why);
  const std::string shown = variable("ZEROLAB_SHOW_GOLDEN");
  std::vector<Run> runs = frozen();
  std::string file;
  for (Run& run : runs) {
    if (shown.empty() || run.name == shown) {
      INFO(run.name << "\n  " << run.command);
      const Result now = measure(run);
      if (!shown.empty()) std::cout << text(now.items);
      if (recording()) run.gave = now.gave;
      const std::string different = difference(run, now);
      INFO(different);
      CHECK(different.empty());
    }
    file += run.command + "\n  " + run.name + " | " + run.gave + "\n";
  }
  if (recording()) cli::write_file(kFile, file);
}

std::string difference(const Run& recorded, const Result& now) {
  if (recorded.gave == now.gave) return "";
  return "recorded: " + recorded.gave + "\nnow:      " + now.gave + "\nall that it gives now:\n" +
         text(now.items) + "The same list of another commit: ZEROLAB_SHOW_GOLDEN='" +
         recorded.name + "' ./zl test '[golden]'\n";
}

// FNV-1a of 64 bits.
std::string hash(const std::string& bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char byte : bytes) value = (value ^ uint8_t(byte)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

}  // namespace golden
