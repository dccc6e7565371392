#include "tests/golden/run.h"

#include <array>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/zerolab/process.h"

namespace golden {
namespace {

using Json = nlohmann::ordered_json;

const std::map<std::string, std::string> kBinaries = {
    {"zerolab", ZEROLAB_BINARY},
    {"on_fake", ZEROLAB_BINARY_ON_FAKE},
    {"on_emulator", ZEROLAB_BINARY_ON_EMULATOR},
    {"own_model", std::string(ZEROLAB_TUTORIALS) + "/own_model"},
};

// Of a document: times, and names that are prose or stand elsewhere.
const std::set<std::string> kLeftOut = {"seconds",
                                        "communication_time",
                                        "seconds_per_step",
                                        "tokens_per_second",
                                        "files",
                                        "data",
                                        "model",
                                        "settings",
                                        "schema",
                                        "stage"};

// A value as text with all bits of its numbers.
std::string canonical(const Json& value) {
  if (value.is_number_float()) return exactly(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) text += key + "=" + canonical(item) + ";";
  return "(" + text + ")";
}

// Whole numbers in clear; of others a hash and the last one.
std::string series(const Json& list) {
  std::vector<int64_t> whole;
  for (const Json& item : list)
    if (item.is_number_integer()) whole.push_back(item.get<int64_t>());
  if (list.empty()) return "none";
  if (whole.size() == list.size()) return of_ranks(whole);
  return hash(canonical(list)) + ", " + std::to_string(list.size()) + " with last " +
         list.back().dump();
}

// "memory device gradient": "rest 12544 x3, peak 20736 x3". Of predictions and measurements, which
// `ok` compares, the latter.
void add_memory(const Json& rows, const std::string& prefix, Quantities& to) {
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> uses;
  for (const Json& row : rows) {
    const std::string use =
        row.at("pool").get<std::string>() + " " + row.at("use").get<std::string>();
    for (const char* what : {"rest", "peak"}) {
      const std::string key = std::string(what) + "_bytes";
      const Json value = row.contains(key) ? row[key] : row.value("predicted_" + key, Json());
      if (!value.is_null()) uses[use][what].push_back(value.get<int64_t>());
    }
  }
  for (const auto& [use, bytes] : uses) {
    std::string text = "rest " + of_ranks(bytes.at("rest"));
    if (bytes.count("peak")) text += ", peak " + of_ranks(bytes.at("peak"));
    to[prefix + "memory " + use] = text;
  }
}

// "traffic all_gather parameter": "calls 3, elements 26496, sent 70656".
void add_traffic(const Json& rows, const std::string& prefix, Quantities& to) {
  for (const Json& row : rows) {
    const std::string sent = "sent_bytes_per_rank";
    to[prefix + "traffic " + row.at("collective").get<std::string>() + " " +
       row.at("purpose").get<std::string>()] =
        "calls " + row.at("calls").dump() + ", elements " + row.at("elements").dump() + ", sent " +
        (row.contains(sent) ? row[sent] : row.at("predicted_" + sent)).dump();
  }
}

// "moves host to device": "3 x2, bytes 69376 x2", per step.
void add_moves(const Json& rows, const std::string& prefix, Quantities& to) {
  std::map<std::string, std::array<std::vector<int64_t>, 2>> moves;
  for (const Json& row : rows) {
    const std::string of = row.contains("bytes_per_step") ? "" : "predicted_";
    moves[row.at("move")][0].push_back(row.at(of + "moves_per_step"));
    moves[row.at("move")][1].push_back(row.at(of + "bytes_per_step"));
  }
  for (const auto& [move, of] : moves)
    to[prefix + "moves " + move] = of_ranks(of[0]) + ", bytes " + of_ranks(of[1]);
}

// "pool device, unit h.0, phase forward, asked 42624". Which rank is the first to be out of memory
// is chance.
std::string without_rank(const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items())
    if (key != "rank")
      text += (text.empty() ? "" : ", ") + key + " " +
              (value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

// "all calls of all_gather": "30 x3", of the whole run.
void add_calls(const Json& rows, Quantities& to) {
  std::map<std::string, std::vector<int64_t>> calls;
  for (const Json& row : rows) calls[row.at("collective")].push_back(row.at("calls"));
  for (const auto& [collective, of] : calls) to["all calls of " + collective] = of_ranks(of);
}

void add_values(const Json& object, const std::string& prefix, Quantities& to) {
  for (const auto& [key, value] : object.items()) {
    if (kLeftOut.count(key)) continue;
    if (key == "stages") {
      for (const Json& stage : value)
        add_values(stage, stage.at("stage").get<std::string>() + " ", to);
    } else if (key == "memory") {
      add_memory(value, prefix, to);
    } else if (key == "communication") {
      add_traffic(value, prefix, to);
    } else if (key == "moves") {
      add_moves(value, prefix, to);
    } else if (key == "communication_seconds") {
      add_calls(value, to);
    } else if (value.is_array()) {
      to[prefix + key] = series(value);
    } else if (key == "sample" && value.is_object()) {
      to[prefix + key] = hash(canonical(value));
    } else if (value.is_object()) {
      to[prefix + key] = without_rank(value);
    } else {
      to[prefix + key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
}

// "stages[].loss[]": "number".
void add_keys(const Json& value, const std::string& path, Quantities& to) {
  if (value.is_structured()) {
    for (const auto& [key, item] : value.items())
      add_keys(item, value.is_array() ? path + "[]" : path + (path.empty() ? "" : ".") + key, to);
  } else {
    to[path] = value.type_name();
  }
}

void add_files(const std::string& folder, const Record& record, Quantities& to) {
  Json metrics = Json::array(), scales = Json::array();
  for (const std::string& line : cli::lines(cli::read_file(folder + "/metrics.jsonl"))) {
    Json step = Json::parse(line);
    if (record.keys) add_keys(step, "metrics.jsonl", to);
    step.erase("seconds");
    if (step.contains("loss_scale")) scales.push_back(step["loss_scale"]);
    metrics.push_back(step);
  }
  if (record.keys) return;
  to["metrics.jsonl"] = hash(canonical(metrics)) + ", " + std::to_string(metrics.size()) + " lines";
  if (!scales.empty()) to["loss_scale"] = scales.dump();
  const std::string weights = cli::read_file(folder + "/model.safetensors");
  to["model.safetensors"] = hash(weights) + ", " + std::to_string(weights.size()) + " bytes";
}

// Of what a program prints for people: its numbers, a line each.
Quantities numbers(const std::string& text) {
  static const std::regex number("\\b[0-9]+(\\.[0-9]+)?\\b");
  Quantities found;
  const std::vector<std::string> lines = cli::lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string& all = found["line " + std::to_string(i + 1)];
    for (std::sregex_iterator it(lines[i].begin(), lines[i].end(), number), end; it != end; ++it)
      all += (all.empty() ? "" : " ") + it->str();
  }
  return found;
}

// A line for the shell, in which variables of the environment that begin the command stand before
// the program.
std::string shell_line(const std::string& program, const std::string& command) {
  static const std::regex variable("[A-Z_]+=.*");
  std::istringstream words(command);
  std::string before, line = " '" + program + "'";
  for (std::string word; words >> word;) {
    if (std::regex_match(word, variable)) {
      before += " '" + word + "'";
    } else {
      line += " '" + word + "'";
    }
  }
  return (before.empty() ? "" : "env" + before) + line;
}

}  // namespace

const std::set<std::string>& programs() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all;
    for (const auto& [name, path] : kBinaries) all.insert(name);
    return all;
  }();
  return names;
}

Quantities measure(const Record& record) {
  const cli::ScratchFolder folder;
  const std::string words = " " + record.command + " ", out = folder / "run";
  const bool trains = words.find(" train ") != std::string::npos;
  std::string line = shell_line(kBinaries.at(record.program), record.command);
  if (record.program != "own_model") line += " --json -q";
  if (trains) line += " --out '" + out + "'";
  const cli::Finished run = cli::shell(line);
  Quantities found{{"exit code", std::to_string(run.code)}};
  if (record.program == "own_model") {
    found.merge(numbers(run.out));
  } else if (Json document = Json::parse(run.out, nullptr, false); document.is_object()) {
    record.keys ? add_keys(document, "", found) : add_values(document, "", found);
  } else if (!run.out.empty()) {
    found["stdout"] = "something that is no JSON document";
  }
  if (trains && run.code == 0) add_files(out, record, found);
  return found;
}

std::string other_bits_expected() {
  const std::string version = cli::shell(std::string(ZEROLAB_BINARY) + " --version").out;
  if (cli::contains(version, "x86-64-v3") || cli::contains(version, "x86-64-v4")) return "";
  return "the bits were recorded with kernels for x86-64-v3 and x86-64-v4, which round a product "
         "and a sum once; this is " +
         version;
}

}  // namespace golden
