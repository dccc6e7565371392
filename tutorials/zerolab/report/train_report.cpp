#include "tutorials/zerolab/report/train_report.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stages/predict/dry_run.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

const StepRecord* last_evaluated(const TrainingResult& result) {
  for (auto step = result.steps.rbegin(); step != result.steps.rend(); ++step)
    if (step->eval_loss) return &*step;
  return nullptr;
}

// "\ufffd" marks bytes that are not UTF-8.
std::string text_of(const std::vector<int32_t>& bytes) {
  return printable(std::string(bytes.begin(), bytes.end()), "\ufffd");
}

std::string row(const char* what, const std::string& text) {
  return format("%-12s", what) + text + "\n";
}

// Of the rank with the highest peak.
std::string memory_text(const Json& json) {
  const std::vector<int64_t> peaks = json["peak_total_bytes"];
  const auto most = std::ranges::max_element(peaks);
  Json rows = Json::array();
  for (const Json& row : json["memory"])
    if (row["rank"] == most - peaks.begin()) rows.push_back(row);
  return row("memory", str("peak ", human_bytes(*most), " on rank ", most - peaks.begin(), ":")) +
         table_text<Json>(rows, {{"pool", "/pool", as_is},
                                 {"use", "/use", as_is},
                                 {"in steady state", "/rest_bytes", as_bytes},
                                 {"at its own peak", "/peak_bytes", as_bytes}});
}

std::string sample_text(const TextSample& sample) {
  if (!sample.missing.empty()) return row("sample", "none: " + sample.missing);
  const std::string how = sample.temperature == 0
                              ? "always the most likely token"
                              : "temperature " + digits(sample.temperature, 3) +
                                    (sample.top_k > 0 ? str(", top-k ", sample.top_k) : "");
  std::vector<int32_t> all = sample.prompt;
  if (all.size() == 1 && all[0] == '\n') all.clear();
  all.insert(all.end(), sample.tokens.begin(), sample.tokens.end());
  std::istringstream lines(text_of(all));
  std::string text = row("sample", how + ":");
  for (std::string line; std::getline(lines, line);)
    text += line.empty() ? "\n" : "  " + line + "\n";
  return text;
}

// ---- JSON --------------------------------------------------------------------------------------

// Closed formulas know every unit to run once in a pass. Blocks that are computed again together
// run otherwise; then only a dry run knows.
std::optional<Prediction> prediction_of(const TrainReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  if (report.dry) return predict(spec, *report.dry, formulas_apply(spec));
  if (report.setup.config.checkpoints > 0) return std::nullopt;
  return predict(prediction_input(spec));
}

// Memory of all ranks, and traffic of rank 0 in one step that makes the communication. What is not
// predicted is null: without a dry run, activations and workspace.
void add_rows(Json& json, const TrainReport& report) {
  const std::optional<Prediction> known = prediction_of(report);
  const Prediction prediction = known.value_or(Prediction());
  const TrainingResult& result = report.result;
  const StageKind stage = report.setup.spec.engine.stage;
  const StepCount steps = count(result.steps);
  std::vector<MemoryRow> memory;
  std::vector<MoveRow> moves;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankReport& of_rank = result.ranks[rank];
    std::ranges::copy(memory_rows(int(rank), of_rank, prediction), std::back_inserter(memory));
    std::ranges::copy(move_rows(int(rank), of_rank.moves, {}, {}), std::back_inserter(moves));
    json["peak_total_bytes"].push_back(of_rank.rest.peak_total());
  }
  json["memory"] = memory_json<Json>(memory, Columns::both);
  for (size_t i = 0; i < memory.size(); ++i)
    if (!report.dry && !(known && has_closed_formula(memory[i].use, memory[i].pool)))
      for (const char* key : {"predicted_rest_bytes", "predicted_peak_bytes"})
        json["memory"][i][key] = nullptr;
  std::vector<TrafficRow> traffic = traffic_rows(stage, result.ranks.at(0).log, prediction, steps);
  for (TrafficRow& row : traffic)
    for (int64_t* all : {&row.calls, &row.elements, &row.sent, &row.predicted_sent})
      *all /= std::max<int64_t>(1, steps.with(stage, row.purpose));
  json["communication"] = traffic_json<Json>(traffic, Columns::both);
  if (!known)
    for (Json& row : json["communication"]) row["predicted_sent_bytes_per_rank"] = nullptr;
  // Of the whole run, with the parts until all ranks had come, and in which the rank had nothing
  // else to do.
  json["communication_seconds"] = Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    for (const auto& [collective, time] : result.ranks[rank].log.times())
      json["communication_seconds"].push_back({{"rank", rank},
                                               {"collective", name(collective)},
                                               {"calls", time.calls},
                                               {"seconds", double(time.nanoseconds) * 1e-9},
                                               {"waited_seconds", double(time.waited) * 1e-9},
                                               {"exposed_seconds", double(time.exposed) * 1e-9}});
  if (!moves.empty())
    json["moves"] = moves_json<Json>(moves, int64_t(result.steps.size()), Columns::measured);
}

Json checkpoints_json(const std::vector<CheckpointRecord>& checkpoints) {
  Json all = Json::array();
  for (const CheckpointRecord& saved : checkpoints)
    all.push_back({{"folder", saved.folder},
                   {"step", saved.step},
                   {"bytes", saved.bytes},
                   {"seconds", saved.seconds},
                   {"stall_seconds", saved.stall}});
  return all;
}

Json sample_json(const std::optional<TextSample>& sample) {
  if (!sample || !sample->missing.empty()) return nullptr;
  return {{"temperature", sample->temperature},
          {"top_k", sample->top_k},
          {"prompt_tokens", sample->prompt},
          {"tokens", sample->tokens},
          {"text", text_of(sample->tokens)}};
}

Json train_document(const TrainReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  const std::vector<StepRecord>& steps = report.result.steps;
  Json json{{"schema", 1},
            {"command", "train"},
            {"stage", name(spec.engine.stage)},
            {"ranks", spec.ranks},
            {"parameters", spec.model.parameters()},
            {"steps", spec.steps},
            {"seed", spec.engine.seed},
            {"precision", precision_name(spec.engine.precision)},
            {"device", spec.device_name()}};
  if (report.setup.device.on_gpus()) json["tf32"] = report.setup.device.tf32;
  int64_t tokens = 0, skipped = 0;
  double seconds = 0;
  Json loss = Json::array(), norm = Json::array(), lr = Json::array();
  for (const StepRecord& step : steps) {
    tokens += step.tokens, seconds += step.seconds, skipped += step.skipped;
    loss.push_back(step.loss), norm.push_back(step.grad_norm), lr.push_back(step.lr);
  }
  const StepRecord* evaluated = last_evaluated(report.result);
  json.update({{"threads", report.setup.device.threads},
               {"model", model_json<Json>(report.setup)},
               {"data", data_json<Json>(report.setup)},
               {"final_loss", steps.back().loss},
               {"eval_loss", evaluated ? Json(*evaluated->eval_loss) : Json()},
               {"loss", loss},
               {"grad_norm", norm},
               {"lr", lr},
               {"skipped_steps", skipped},
               {"tokens", tokens},
               {"seconds", seconds},
               {"tokens_per_second", double(tokens) / seconds}});
  add_rows(json, report);
  const auto file = [&](size_t i) {
    return i < report.files.size() ? Json(report.files[i]) : Json(nullptr);
  };
  json["files"] = {{"metrics", file(0)}, {"weights", file(1)}};
  if (!report.more_files.empty()) json["files"]["more"] = report.more_files;
  if (report.resumed)
    json["resumed_from"] = {{"folder", report.resumed->folder},
                            {"step", report.resumed->position.step}};
  if (spec.checkpoint.saves()) json["checkpoints"] = checkpoints_json(report.checkpoints);
  json["sample"] = sample_json(report.sample);
  return json;
}

}  // namespace

std::string text_report(const TrainReport& report) {
  const std::vector<StepRecord>& steps = report.result.steps;
  const StepRecord &first = steps.front(), &last = steps.back();
  const Json json = train_document(report);
  std::string text = row(
      "loss",
      str(digits(last.loss, 6), " at step ", last.step,
          last.step > first.step ? str(", ", digits(first.loss, 6), " at step ", first.step) : ""));
  if (const StepRecord* evaluated = last_evaluated(report.result))
    text += row("held-out", str(digits(*evaluated->eval_loss, 6), " after step ", evaluated->step));
  if (json["skipped_steps"] > 0)
    text += row("skipped",
                str(json["skipped_steps"].get<int64_t>(), " of ", steps.size(),
                    " steps, because their gradient was not finite",
                    !last.loss_scale ? "; try a smaller learning rate"
                    : report.setup.config.loss_scale.static_scale > 0
                        ? str("; try a smaller fp16.loss_scale than the fixed ", *last.loss_scale)
                        : str("; loss scale ", *last.loss_scale)));
  text += row("speed", str(short_number(json["tokens_per_second"]), " tokens/s, ",
                           milliseconds(json["seconds"].get<double>() / double(steps.size())),
                           " ms per step"));
  text += memory_text(json);
  std::vector<std::string> files = report.files;
  if (!report.page.empty()) files.push_back(report.page);
  if (!report.checkpoints.empty()) files.push_back(report.checkpoints.back().folder);
  files.insert(files.end(), report.more_files.begin(), report.more_files.end());
  if (files.empty()) text += row("files", "none; --out DIR keeps metrics and weights");
  for (const std::string& file : files)
    text += row(&file == &files[0] ? "files" : "", printable(file));
  return text + (report.sample ? sample_text(*report.sample) : "");
}

std::string json_report(const TrainReport& report) { return json_text(train_document(report)); }

std::string finished_report(const FinishedRun& run, bool json) {
  if (json)
    return json_text(Json{{"schema", 1},
                          {"command", "train"},
                          {"finished", true},
                          {"step", run.step},
                          {"steps", run.steps},
                          {"folder", run.folder}});
  return printable(str(run.folder, " is finished: it is at step ", run.step,
                       run.step > run.steps ? ", and --steps is " : " of ", run.steps,
                       "; --steps N trains on\n"));
}

}  // namespace zl::cli
