#include "tutorials/zerolab/report/run_page.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/page/page.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

std::optional<std::vector<std::string>> metrics_lines(const std::string& folder) {
  const std::string path = in_folder(folder, "metrics.jsonl");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void write_files(const std::vector<TextFile>& files, Existing existing) {
  std::vector<std::unique_ptr<OutputFile>> all;
  for (const TextFile& file : files) {
    all.push_back(std::make_unique<OutputFile>(file.path, "", existing == Existing::replace));
    all.back()->write_text(file.text);
  }
  for (const auto& file : all) file->commit();
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
  try {
    write_files({{in_folder(files_.folder, "report.json"), report_json(report())}},
                files_.existing);
    files_.existing = Existing::replace;
  } catch (const OutputError& e) {
    problem_ = e.what();
    std::fprintf(stderr, "zerolab: %s; training goes on without it\n", printable(problem_).c_str());
  }
}

void RunPage::on_step(StageKind stage, const StepRecord& record) {
  last_step_ = record.step;
  made_ = true;
  if (files_.folder.empty() || kind_ == "train") return;
  metrics_[stage].push_back(metrics_line(record));
}

RunReport RunPage::report() const {
  RunReport report{.kind = kind_,
                   .device = describe(setup_.device, setup_.spec.ranks),
                   .settings = settings_,
                   .steps_asked = setup_.spec.steps};
  for (const auto& [stage, lines] : metrics_) report.metrics.emplace_back(name(stage), lines);
  if (kind_ == "train")
    report.metrics.emplace_back(name(setup_.spec.engine.stage),
                                metrics_lines(files_.folder).value_or(std::vector<std::string>()));
  for (const auto& [stage, recording] : recordings_)
    report.recordings.push_back(recording.result());
  return report;
}

void RunPage::write(const std::string& document, const std::vector<TextFile>& more) {
  if (files_.folder.empty() || !files_.writes) return;
  if (!problem_.empty()) throw OutputError(problem_);
  RunReport all = report();
  all.document = document;
  std::vector<TextFile> files = report_files(files_.folder, report_json(all));
  files.insert(files.end(), more.begin(), more.end());
  write_files(files, files_.existing);
}

bool RunPage::write_failure(const std::string& message, RunEnd end) {
  if (files_.folder.empty() || !files_.writes || !made_ || !problem_.empty()) return false;
  RunReport all = report();
  all.failure = RunFailure{message, last_step_, end};
  try {
    write_files(report_files(files_.folder, report_json(all)), files_.existing);
    return true;
  } catch (const std::exception& e) {  // the run's own error matters more
    std::fprintf(stderr, "zerolab: %s\n", printable(e.what()).c_str());
    return false;
  }
}

}  // namespace zl::cli
