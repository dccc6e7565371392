// report.json: what is in it.

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostPoints = 1'000;  // of a curve

std::string text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The command line of this process, so that a shell repeats it; "zerolab" instead of its path.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line = "zerolab", word;
  std::getline(file, word, '\0');  // the program
  while (std::getline(file, word, '\0')) line += " " + shell_word(word);
  return line;
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
  return text;
}

// The rows of a curve: of each stretch the first and the last, and those with the least and the
// largest of each value.
Json sampled(const Json& rows) {
  if (rows.size() <= kMostPoints) return rows;
  constexpr size_t stretches = 100;
  std::set<size_t> kept;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t first = s * rows.size() / stretches, end = (s + 1) * rows.size() / stretches;
    kept.insert({first, end - 1});
    for (const char* key : {"loss", "grad_norm", "eval_loss"}) {
      std::map<double, size_t> by_value;
      for (size_t i = first; i < end; ++i)
        if (const Json value = rows[i].value(key, Json()); value.is_number())
          by_value.emplace(value, i);
      if (!by_value.empty()) kept.insert({by_value.begin()->second, by_value.rbegin()->second});
    }
  }
  Json some = Json::array();
  for (const size_t i : kept) some.push_back(rows[i]);
  return some;
}

// The steps of a stage in `json`, the object of a report, and what is counted of them.
void set_metrics(Json& json, const std::string& stage, const Json& rows) {
  json["steps_made"][stage] = rows.size();
  json["nonfinite_losses"][stage] = std::ranges::count_if(
      rows, [](const Json& row) { return row.contains("loss") && row["loss"].is_null(); });
  json["metrics"][stage] = sampled(rows);
}

Json rows_of(const std::vector<std::string>& lines) {
  Json rows = Json::array();
  for (const std::string& line : lines) {
    // A run that was killed has half a line.
    Json row = is_json(line) ? Json::parse(line) : Json();
    if (row.is_object() && row.value("step", Json()).is_number_integer()) rows.push_back(row);
  }
  return rows;
}

Json failure_json(const std::optional<RunFailure>& failure) {
  if (!failure) return nullptr;
  Json json{{"message", failure->message}, {"after_step", failure->after_step}};
  if (failure->end == RunEnd::interrupted) json["interrupted"] = true;
  if (failure->end == RunEnd::unknown) json["running"] = true;
  return json;
}

}  // namespace

std::string RunPage::report(const std::string& document,
                            const std::optional<RunFailure>& failure) const {
  Json json{{"schema", kSchema},
            {"kind", kind_},
            {"about",
             {{"command", command_line()},
              {"version", kVersion},
              {"compiler", compiler()},
              {"device", describe(setup_.device, setup_.spec.ranks)},
              {"cores", usable_cores()},
              {"date", date()},
              {"settings", settings_}}},
            {"document", document.empty() ? Json() : Json::parse(document)},
            {"failure", failure_json(failure)},
            {"steps_asked", setup_.spec.steps},
            {"steps_made", Json::object()},
            {"nonfinite_losses", Json::object()},
            {"metrics", Json::object()},
            {"sampled", Json::array()},
            {"recordings", Json::array()}};
  for (const auto& [stage, recording] : recordings_) {
    const recording::RecordedStep step = recording.result();
    if (const std::string one = step_json(step); !one.empty())
      json["recordings"].push_back(Json::parse(one));
    for (const std::string& sentence : left_out(step))
      if (std::ranges::count(json["sampled"], Json(sentence)) == 0)
        json["sampled"].push_back(sentence);
  }
  for (const auto& [stage, lines] : metrics_) set_metrics(json, name(stage), rows_of(lines));
  if (kind_ == "train")
    set_metrics(json, name(setup_.spec.engine.stage),
                rows_of(metrics_lines(files_.folder).value_or(std::vector<std::string>())));
  return text(json) + "\n";
}

std::string continued_report(const std::string& report_json, const std::string& path,
                             const std::optional<std::vector<std::string>>& metrics) try {
  Json json = is_json(report_json) ? Json::parse(report_json) : Json();
  const Json schema = json.at("schema");
  require_input(schema == kSchema, "'", path, "' has schema ", text(schema),
                ", but this zerolab reads ", kSchema, "; use the version that wrote it");
  Json& steps = json.at("metrics");
  if (metrics && steps.size() == 1)
    set_metrics(json, steps.items().begin().key(), rows_of(*metrics));
  int64_t after = 0;
  for (const auto& rows : steps)
    if (!rows.empty()) after = rows.back().at("step");
  if (json.at("document").is_null() && json.at("failure").is_null())
    json["failure"] = failure_json(
        RunFailure{str("The end of the run is not recorded: it was killed, or it still runs. ",
                       "The last step in its files is ", after, "."),
                   after, RunEnd::unknown});
  return text(json) + "\n";
} catch (const Json::exception&) {
  throw InputError("'" + path +
                   "' is damaged: it is not the JSON document of a report; run the command with "
                   "--out again");
}

}  // namespace zl::cli
