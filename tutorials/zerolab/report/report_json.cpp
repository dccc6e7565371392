#include "tutorials/zerolab/report/report_json.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tensor/error.h"
#include "tensor/io/json_check.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/page/report_check.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostPoints = 1'000;  // of a curve

std::string text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// As a word of a command for a POSIX shell.
std::string shell_word(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
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
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

// How a sentence names the steps of a stage.
std::string of_stage(const std::string& stage) { return str(" steps of ", stage, " "); }

// The rows of a curve: of each stretch the first and the last, and those with the least and the
// largest loss and norm; and all with an eval_loss while there is room.
Json sampled(const Json& rows, const std::string& stage, Json& sentences) {
  if (rows.size() <= kMostPoints) return rows;
  constexpr size_t stretches = 100;
  std::vector<bool> kept(rows.size());
  for (size_t s = 0; s < stretches; ++s) {
    const size_t first = s * rows.size() / stretches, end = (s + 1) * rows.size() / stretches;
    kept[first] = kept[end - 1] = true;
    for (const char* key : {"loss", "grad_norm"}) {
      size_t least = first, most = first;
      for (size_t i = first; i < end; ++i) {
        const Json& value = rows[i].value(key, Json());
        if (!value.is_number()) continue;
        const Json &low = rows[least].value(key, Json()), &high = rows[most].value(key, Json());
        if (!low.is_number() || value < low) least = i;
        if (!high.is_number() || value > high) most = i;
      }
      kept[least] = kept[most] = true;
    }
  }
  const int64_t room = int64_t(kMostPoints) - std::ranges::count(kept, true);
  int64_t added = 0;
  for (size_t i = 0; i < rows.size() && added < room; ++i)
    if (!kept[i] && rows[i].contains("eval_loss")) kept[i] = true, ++added;
  Json some = Json::array();
  for (size_t i = 0; i < rows.size(); ++i)
    if (kept[i]) some.push_back(rows[i]);
  sentences.push_back(
      str("Of ", with_commas(int64_t(rows.size())), of_stage(stage), some.size(),
          " are drawn. From each of 100 equal parts: the first and last step, and those with the "
          "lowest and highest loss and norm",
          added > 0 ? str("; besides, ", added, " with a held-out loss.") : "."));
  return some;
}

// The steps of a stage in `json`, the object of a report, and what is said and counted of them.
void set_metrics(Json& json, const std::string& stage, const Json& rows) {
  std::erase_if(json["sampled"].get_ref<Json::array_t&>(), [&](const Json& sentence) {
    return sentence.get<std::string>().find(of_stage(stage)) != std::string::npos;
  });
  json["steps_made"][stage] = rows.size();
  json["nonfinite_losses"][stage] = std::ranges::count_if(
      rows, [](const Json& row) { return row.contains("loss") && row["loss"].is_null(); });
  json["metrics"][stage] = sampled(rows, stage, json["sampled"]);
}

Json rows_of(const std::vector<std::string>& lines) {
  Json rows = Json::array();
  for (const std::string& line : lines) {
    if (!is_json(line)) continue;  // a run that was killed has half a line
    if (Json row = Json::parse(line); row.is_object()) rows.push_back(std::move(row));
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

std::string report_json(const RunReport& report) {
  const Json about{{"command", command_line()},  {"version", kVersion},
                   {"compiler", compiler()},     {"device", report.device},
                   {"cores", usable_cores()},    {"date", date()},
                   {"settings", report.settings}};
  Json sentences = report.left_out;
  std::string recordings;
  for (const recording::RecordedStep& step : report.recordings) {
    const std::string recording = step_json(step);
    if (recording.empty()) continue;
    recordings += (recordings.empty() ? "\n" : ",\n") + recording;
    for (const std::string& sentence : left_out(step))
      if (std::ranges::find(sentences, Json(sentence)) == sentences.end())
        sentences.push_back(sentence);
  }
  Json steps{{"sampled", sentences},
             {"steps_made", Json::object()},
             {"nonfinite_losses", Json::object()},
             {"metrics", Json::object()}};
  for (const auto& [stage, lines] : report.metrics) set_metrics(steps, stage, rows_of(lines));
  return str(
      "{\"schema\": ", kSchema, ", \"kind\": ", text(report.kind), ",\n\"about\": ", text(about),
      ",\n\"document\": ", report.document.empty() ? "null" : text(Json::parse(report.document)),
      ",\n\"failure\": ", text(failure_json(report.failure)),
      ",\n\"steps_asked\": ", report.steps_asked, ",\n\"steps_made\": ", text(steps["steps_made"]),
      ",\n\"nonfinite_losses\": ", text(steps["nonfinite_losses"]),
      ",\n\"metrics\": ", text(steps["metrics"]), ",\n\"sampled\": ", text(steps["sampled"]),
      ",\n\"recordings\": [", recordings, "]}\n");
}

std::string continued_report(const std::string& report_json, const std::string& path,
                             const std::optional<std::vector<std::string>>& metrics) {
  Json json = is_json(report_json) ? Json::parse(report_json) : Json();
  require_input(json.is_object() && json.contains("schema"), "'", path,
                "' is damaged: it is not the JSON document of a report; run the command with --out "
                "again");
  require_input(json["schema"] == kSchema, "'", path, "' has schema ", text(json["schema"]),
                ", but this zerolab reads ", kSchema, "; use the version that wrote it");
  require_report(report_json, path);
  if (metrics && json["metrics"].size() == 1) {
    const std::string stage = json["metrics"].items().begin().key();
    const Json rows = rows_of(*metrics);
    require_rows(text(rows),
                 (std::filesystem::path(path).parent_path() / "metrics.jsonl").string());
    set_metrics(json, stage, rows);
  }
  int64_t after = 0;
  for (const auto& rows : json["metrics"])
    if (!rows.empty()) after = rows.back()["step"];
  if (json["document"].is_null() && json["failure"].is_null())
    json["failure"] = failure_json(
        RunFailure{str("The end of the run is not recorded: it was killed, or it still runs. ",
                       "The last step in its files is ", after, "."),
                   after, RunEnd::unknown});
  return text(json) + "\n";
}

}  // namespace zl::cli
