#include "tutorials/zerolab/report/run_page.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/page/page.h"
#include "tutorials/zerolab/run/machine.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostPoints = 1'000;  // of a curve

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string dumped(const Json& json) {
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

// The lines of metrics.jsonl, or of a file like it.
Json rows_of(std::istream&& lines) {
  Json rows = Json::array();
  for (std::string line; std::getline(lines, line);) {
    // A run that was killed has half a line.
    Json row = is_json(line) ? Json::parse(line) : Json();
    if (row.is_object() && row.value("step", Json()).is_number_integer()) rows.push_back(row);
  }
  return rows;
}

// `kind`: "interrupted" by a signal, "running" if it was killed or still runs, or "".
std::string failure_json(const std::string& message, int64_t after_step, const std::string& kind) {
  Json json{{"message", message}, {"after_step", after_step}};
  if (!kind.empty()) json[kind] = true;
  return dumped(json);
}

}  // namespace

void write_files(const std::vector<TextFile>& files) {
  for (const TextFile& file : files) OutputFile(file.path, "", true).write_text(file.text);
}

std::vector<TextFile> report_files(const std::string& folder, const std::string& report_json) {
  return {{in_folder(folder, "report.json"), report_json},
          {in_folder(folder, "report.html"), page_html(report_json)}};
}

RunPage::RunPage(const RunSetup& setup, const std::string& kind, const std::string& settings,
                 Files files)
    : setup_(setup), kind_(kind), settings_(settings), files_(std::move(files)) {
  if (files_.folder.empty()) return;
  for (const StageKind stage : all_stages()) recordings_.try_emplace(stage, setup.spec.ranks);
}

std::string RunPage::report(const std::string& document, const std::string& failure) const {
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
            {"document", Json::parse(document)},
            {"failure", Json::parse(failure)},
            {"steps_asked", setup_.spec.steps},
            {"steps_made", Json::object()},
            {"nonfinite_losses", Json::object()},
            {"metrics", Json::object()},
            {"sampled", Json::array()},
            {"recordings", Json::array()}};
  for (const auto& [stage, recording] : recordings_) {
    const recording::RecordedStep step = recording.result();
    if (!step.json.empty()) json["recordings"].push_back(Json::parse(step.json));
    for (const std::string& sentence : step.left_out)
      if (std::ranges::count(json["sampled"], Json(sentence)) == 0)
        json["sampled"].push_back(sentence);
  }
  for (const auto& [stage, lines] : metrics_)
    set_metrics(json, name(stage), rows_of(std::istringstream(lines)));
  if (kind_ == "train")
    set_metrics(json, name(setup_.spec.engine.stage),
                rows_of(std::ifstream(in_folder(files_.folder, "metrics.jsonl"))));
  return dumped(json) + "\n";
}

std::string RunPage::file() const {
  return files_.folder.empty() ? "" : in_folder(files_.folder, "report.html");
}

void RunPage::at_start(Trainer& training) {
  if (!recordings_.empty()) recordings_.at(training.spec().engine.stage).at_start(training);
}

void RunPage::after_step(Trainer& training) {
  if (recordings_.empty()) return;
  const bool recorded = recordings_.at(training.spec().engine.stage).after_step(training);
  if (!recorded || kind_ != "train") return;
  write_files({{in_folder(files_.folder, "report.json"), report()}});
}

void RunPage::on_step(StageKind stage, const StepRecord& record) {
  last_step_ = record.step;
  if (files_.folder.empty() || kind_ == "train") return;
  metrics_[stage] += metrics_line(record) + "\n";
}

void RunPage::end(const std::string& result, const std::string& document,
                  const std::vector<TextFile>& more, std::vector<std::string> problems) {
  std::fputs(result.c_str(), stdout);
  std::fflush(stdout);
  if (!files_.folder.empty() && files_.writes) try {
      std::vector<TextFile> files = report_files(files_.folder, report(document));
      files.insert(files.end(), more.begin(), more.end());
      write_files(files);
    } catch (const OutputError& e) {
      problems.push_back(e.what());
    }
  for (const std::string& problem : problems)
    if (!problem.empty()) throw OutputError(problem);
}

int RunPage::end_early(const std::exception& e, const std::string& where, const std::string& left) {
  const bool interrupted = dynamic_cast<const Interrupted*>(&e) != nullptr;
  if (interrupted) interrupted_elsewhere();
  const int signal = interrupt_signal();
  if (interrupted && !files_.writes) return 128 + signal;
  std::string text = interrupted ? interrupted_by(signal) + where : e.what(), shown;
  if (!files_.folder.empty() && files_.writes && last_step_ > 0) try {
      const char* kind = is_interrupt(e, signal) ? "interrupted" : "";
      const std::string json = report("null", failure_json(text, last_step_, kind));
      write_files(report_files(files_.folder, json));
      shown = file() + " shows the steps so far";
    } catch (const std::exception& of_page) {  // the run's own error matters more
      say(of_page.what());
    }
  for (const std::string& note : {left, shown}) {
    if (note.empty()) continue;
    if (!interrupted) say(note, "note");
    text += "; " + note;
  }
  if (!interrupted) throw;
  say(text + (left.empty() && shown.empty() ? "; nothing was kept" : ""));
  return 128 + signal;
}

std::string continued_report(const std::string& folder) {
  const std::string path = in_folder(folder, "report.json"),
                    metrics = in_folder(folder, "metrics.jsonl"),
                    text = read_small_file(path, {"report", 1 << 30});
  try {
    Json json = is_json(text) ? Json::parse(text) : Json();
    const Json schema = json.at("schema");
    require_input(schema == kSchema, "'", path, "' has schema ", dumped(schema),
                  ", but this zerolab reads ", kSchema, "; use the version that wrote it");
    Json& steps = json.at("metrics");
    std::error_code error;
    if (steps.size() == 1 && std::filesystem::is_regular_file(metrics, error))
      set_metrics(json, steps.items().begin().key(), rows_of(std::ifstream(metrics)));
    int64_t after = 0;
    for (const auto& rows : steps)
      if (!rows.empty()) after = rows.back().at("step");
    if (json.at("document").is_null() && json.at("failure").is_null())
      json["failure"] = Json::parse(
          failure_json(str("The end of the run is not recorded: it was killed, or it still runs. ",
                           "The last step in its files is ", after, "."),
                       after, "running"));
    return dumped(json) + "\n";
  } catch (const Json::exception&) {
    throw InputError("'" + path +
                     "' is damaged: it is not the JSON document of a report; run the command with "
                     "--out again");
  }
}

}  // namespace zl::cli
