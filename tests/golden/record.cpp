#include "tests/golden/record.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/zerolab/process.h"

namespace golden {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFile = std::string(ZEROLAB_SOURCE_DIR) + "/tests/golden/runs.json";

std::string quoted(const std::string& text) { return Json(text).dump(); }

// Items with commas between them, in lines that leave room for closing brackets within 100 columns.
std::string wrapped(const std::vector<std::string>& items, const std::string& indent) {
  std::string text, line = indent;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (line.size() > indent.size() && line.size() + item.size() + 1 > 96) {
      text += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + item;
  }
  return text + line;
}

// The words in parts: each option begins one.
std::vector<std::string> parts(const std::string& command) {
  std::istringstream words(command);
  std::vector<std::string> all;
  for (std::string word; words >> word;) {
    if (all.empty() || word.starts_with("--")) {
      all.push_back(word);
    } else {
      all.back() += " " + word;
    }
  }
  return all;
}

std::string to_text(const Record& record) {
  std::string text = "{\"name\": " + quoted(record.name) +
                     ",\n \"program\": " + quoted(record.program) +
                     (record.keys ? ", \"keys\": true" : "") + ",\n \"command\": [\n";
  std::vector<std::string> command;
  for (const std::string& part : parts(record.command)) command.push_back(quoted(part));
  text += wrapped(command, "  ") + "],\n \"expect\": {\n";
  std::vector<std::string> items;
  for (const auto& [what, value] : record.expect)
    items.push_back(quoted(what) + ": " + quoted(value));
  return text + wrapped(items, "  ") + "}}";
}

}  // namespace

std::string to_text(const std::vector<Record>& records) {
  std::string text = "[\n";
  for (size_t i = 0; i < records.size(); ++i)
    text += to_text(records[i]) + (i + 1 < records.size() ? ",\n" : "\n");
  return text + "]\n";
}

std::vector<Record> from_text(const std::string& text) {
  std::vector<Record> records;
  for (const Json& one : Json::parse(text)) {
    std::string command;
    for (const std::string part : one.at("command")) command += (command.empty() ? "" : " ") + part;
    records.push_back({one.at("name"), one.at("program"), command, one.value("keys", false),
                       one.at("expect").get<Quantities>()});
  }
  return records;
}

std::vector<Record> recorded() { return from_text(cli::read_file(kFile)); }

bool recording() {
  const char* wanted = std::getenv("ZEROLAB_RECORD_GOLDEN");
  return wanted != nullptr && std::string(wanted) == "1";
}

void check_or_record(const std::set<std::string>& programs,
                     const std::function<Quantities(const Record&)>& measure) {
  std::vector<Record> records = recorded();
  REQUIRE_FALSE(records.empty());
  for (Record& record : records) {
    if (programs.count(record.program) == 0) continue;
    INFO(record.name << "\n  " << record.program << " " << record.command);
    const Quantities now = measure(record);
    if (recording()) {
      record.expect = now;
      continue;
    }
    std::string wrong;
    for (const std::string& line : differences(record.expect, now)) wrong += "\n  " + line;
    INFO("what differs from tests/golden/runs.json:" << wrong);
    CHECK(wrong.empty());
  }
  if (!recording()) return;
  cli::write_file(kFile, to_text(records));
  WARN("wrote " << kFile);
}

std::vector<std::string> differences(const Quantities& recorded, const Quantities& now) {
  std::vector<std::string> all;
  for (const auto& [what, value] : recorded) {
    const auto found = now.find(what);
    if (found == now.end()) {
      all.push_back(what + ": recorded '" + value + "', now absent");
    } else if (found->second != value) {
      all.push_back(what + ": recorded '" + value + "', now '" + found->second + "'");
    }
  }
  for (const auto& [what, value] : now)
    if (recorded.count(what) == 0) all.push_back(what + ": not recorded, now '" + value + "'");
  return all;
}

// FNV-1a of 64 bits.
std::string hash(const std::string& bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char byte : bytes) value = (value ^ uint8_t(byte)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string exactly(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string of_ranks(const std::vector<int64_t>& each) {
  const auto same = [&](int64_t value) { return value == each.front(); };
  if (each.size() > 1 && std::all_of(each.begin(), each.end(), same))
    return std::to_string(each.front()) + " x" + std::to_string(each.size());
  std::string text;
  for (const int64_t value : each) text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

}  // namespace golden
