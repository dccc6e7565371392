#include "tutorials/zerolab/report/train_report.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "stages/predict/dry_run.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

const StepRecord* last_evaluated(const TrainingResult& result) {
  for (auto step = result.steps.rbegin(); step != result.steps.rend(); ++step)
    if (step->eval_loss) return &*step;
  return nullptr;
}

// "\ufffd" for bytes that are no text.
std::string text_of(const std::vector<int32_t>& bytes) {
  return printable(std::string(bytes.begin(), bytes.end()), "\ufffd");
}

std::string indented(const std::string& text) {
  std::string all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    all += (end > at ? "  " : "") + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return all;
}

std::string row(const char* what, const std::string& text) {
  return format("%-12s", what) + text + "\n";
}

std::string ledger_text(const char* what, const std::string& of, const MemoryLedger& ledger) {
  std::string text = row(what, "peak " + human_bytes(ledger.peak_total()) + of +
                                   "; by use, in steady state and at its own peak:");
  for (int i = 0; i < kMemoryUses; ++i) {
    const auto use = MemoryUse(i);
    if (ledger.peak(use) == 0) continue;
    text += format("%-12s  %-16s %12s %12s\n", "", name(use), human_bytes(ledger.live(use)).c_str(),
                   human_bytes(ledger.peak(use)).c_str());
  }
  return text;
}

std::string memory_text(const TrainingResult& result) {
  const auto most = std::ranges::max_element(
      result.ranks, {}, [](const RankReport& rank) { return rank.rest.peak_total(); });
  const std::string of =
      result.ranks.size() > 1 ? " on rank " + std::to_string(most - result.ranks.begin()) : "";
  std::string text = ledger_text("memory", of, most->rest);
  if (most->host.peak_total() > 0) text += ledger_text("host memory", of, most->host);
  if (most->disk.peak_total() > 0) text += ledger_text("disk", of, most->disk);
  return text;
}

std::string sample_text(const TextSample& sample) {
  if (!sample.missing.empty()) return row("sample", "none: " + sample.missing);
  const std::string how = sample.temperature == 0
                              ? "always the most likely token"
                              : "temperature " + digits(sample.temperature, 3) +
                                    (sample.top_k > 0 ? str(", top-k ", sample.top_k) : "");
  if (sample.bytes) {
    std::vector<int32_t> all = sample.prompt;
    if (all.size() == 1 && all[0] == '\n') all.clear();
    all.insert(all.end(), sample.tokens.begin(), sample.tokens.end());
    return row("sample", how + ":") + indented(text_of(all));
  }
  std::string ids;
  for (const int32_t token : sample.tokens) ids += str(" ", token);
  return row("sample", "token ids after " + str(sample.prompt.at(0)) + ", " + how + ":") + " " +
         ids + "\n";
}

// Closed formulas know every unit to run once in a pass. Blocks that are computed again together
// run otherwise; then only a dry run knows.
std::optional<Prediction> prediction_of(const TrainReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  if (report.dry) return predict(spec, *report.dry, formulas_apply(spec));
  if (report.setup.config.checkpoints > 0) return std::nullopt;
  return predict(prediction_input(spec));
}

// Activations and workspace are predicted only by a dry run.
Json memory_json(const TrainReport& report, const std::optional<Prediction>& prediction) {
  Json rows = Json::array();
  const TrainingResult& result = report.result;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    for (const Pool pool : {Pool::device, Pool::host, Pool::disk}) {
      const MemoryLedger& ledger = result.ranks[rank].of(pool);
      for (int i = 0; i < kMemoryUses; ++i) {
        const auto use = MemoryUse(i);
        if (ledger.peak(use) == 0) continue;
        rows.push_back({{"rank", rank},
                        {"pool", name(pool)},
                        {"use", name(use)},
                        {"rest_bytes", ledger.live(use)},
                        {"peak_bytes", ledger.peak(use)},
                        {"predicted_rest_bytes", nullptr},
                        {"predicted_peak_bytes", nullptr}});
        const auto predict = [&](int64_t rest, int64_t peak) {
          rows.back()["predicted_rest_bytes"] = rest;
          rows.back()["predicted_peak_bytes"] = peak;
        };
        if (prediction && has_closed_formula(use, pool))
          predict(prediction->of(pool).rest_of(use), prediction->of(pool).peak_of(use));
        else if (report.dry)
          predict(report.dry->of(pool).live(use), report.dry->of(pool).peak(use));
      }
    }
  }
  return rows;
}

// Of rank 0, in one step that makes the communication.
Json traffic_json(const TrainReport& report, const std::optional<Prediction>& prediction) {
  Json rows = Json::array();
  const GptTrainingSpec& spec = report.setup.spec;
  const StepCount count = zl::count(report.result.steps);
  for (const auto& [key, traffic] : report.result.ranks.at(0).log.rows()) {
    const int64_t steps = std::max<int64_t>(1, count.with(spec.engine.stage, key.purpose));
    rows.push_back({{"collective", name(key.collective)},
                    {"purpose", name(key.purpose)},
                    {"calls", traffic.calls / steps},
                    {"elements", traffic.elements / steps},
                    {"sent_bytes_per_rank", traffic.sent_bytes() / steps}});
    Json& predicted = rows.back()["predicted_sent_bytes_per_rank"];
    if (prediction) {
      const auto row = prediction->traffic.rows().find(key);
      predicted = row == prediction->traffic.rows().end() ? 0 : row->second.sent_bytes();
    }
    if (!key.group.empty()) rows.back()["group"] = key.group;
  }
  return rows;
}

std::vector<MoveRow> measured_moves(const TrainingResult& result) {
  std::vector<MoveRow> all;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    std::ranges::copy(move_rows(int(rank), result.ranks[rank].moves, {}, {}),
                      std::back_inserter(all));
  return all;
}

// Of rank 0.
std::string moves_text(const TrainingResult& result) {
  std::string text;
  for (const MoveRow& row : measured_moves(result))
    if (row.rank == 0)
      text += str(text.empty() ? "" : ", ", human_bytes(row.bytes / int64_t(result.steps.size())),
                  " ", name(row.move));
  return text.empty() ? "" : row("moved", "per rank and step: " + text);
}

// Of the whole run, by rank and collective, with the parts until all ranks had come, and in which
// the rank had nothing else to do.
Json communication_seconds(const TrainingResult& result) {
  Json rows = Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    for (const auto& [collective, time] : result.ranks[rank].log.times())
      rows.push_back({{"rank", rank},
                      {"collective", name(collective)},
                      {"calls", time.calls},
                      {"seconds", double(time.nanoseconds) * 1e-9},
                      {"waited_seconds", double(time.waited) * 1e-9},
                      {"exposed_seconds", double(time.exposed) * 1e-9}});
  return rows;
}

std::string checkpoints_text(const TrainReport& report) {
  std::string text;
  if (report.resumed)
    text += row("resumed", str("from ", printable(report.resumed->folder), ", after step ",
                               report.resumed->position.step));
  if (report.checkpoints.empty()) return text;
  double stall = 0;
  for (const CheckpointRecord& saved : report.checkpoints) stall += saved.stall;
  return text + row("checkpoints", str(report.checkpoints.size(), " saved, the newest is ",
                                       printable(report.checkpoints.back().folder),
                                       "; training waited ", digits(stall, 2), " s for them"));
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

Json sample_json(const TextSample& sample) {
  if (!sample.missing.empty()) return nullptr;
  Json json{{"temperature", sample.temperature},
            {"top_k", sample.top_k},
            {"prompt_tokens", sample.prompt},
            {"tokens", sample.tokens}};
  if (sample.bytes) json["text"] = text_of(sample.tokens);
  return json;
}

}  // namespace

StepTotals step_totals(const std::vector<StepRecord>& steps) {
  StepTotals sum;
  for (const StepRecord& step : steps) {
    sum.tokens += step.tokens;
    sum.seconds += step.seconds;
    sum.skipped += step.skipped;
  }
  return sum;
}

std::string text_report(const TrainReport& report) {
  const StepRecord &first = report.result.steps.front(), &last = report.result.steps.back();
  const StepTotals sum = step_totals(report.result.steps);
  std::string text = row(
      "loss",
      str(digits(last.loss, 6), " at step ", last.step,
          last.step > first.step ? str(", ", digits(first.loss, 6), " at step ", first.step) : ""));
  if (const StepRecord* evaluated = last_evaluated(report.result))
    text += row("held-out", str(digits(*evaluated->eval_loss, 6), " after step ", evaluated->step));
  const auto made = int64_t(report.result.steps.size());
  if (sum.skipped > 0)
    text += row("skipped",
                str(sum.skipped, " of ", made, " steps, because their gradient was not finite",
                    !last.loss_scale ? "; try a smaller learning rate"
                    : report.setup.config.loss_scale.static_scale > 0
                        ? str("; try a smaller fp16.loss_scale than the fixed ", *last.loss_scale)
                        : str("; loss scale ", *last.loss_scale, " in the last step")));
  text += row("speed", str(short_number(double(sum.tokens) / sum.seconds), " tokens/s, ",
                           milliseconds(sum.seconds / double(made)), " ms per step"));
  text += memory_text(report.result) + moves_text(report.result);
  std::vector<std::string> files = report.files;
  if (!report.page.empty()) files.push_back(report.page);
  files.insert(files.end(), report.more_files.begin(), report.more_files.end());
  if (files.empty()) text += row("files", "none; --out DIR keeps metrics and weights");
  for (const std::string& file : files)
    text += row(&file == &files[0] ? "files" : "", printable(file));
  text += checkpoints_text(report);
  if (report.sample) text += sample_text(*report.sample);
  return text;
}

std::string text_report(const FinishedRun& run) {
  const std::string at = run.step > run.steps
                             ? str("step ", run.step, ", and --steps is ", run.steps)
                             : str("step ", run.step, " of ", run.steps);
  return str(run.folder, " is finished: it is at ", at, "; --steps N trains on\n");
}

std::string json_report(const FinishedRun& run) {
  return json_text(Json{{"schema", 1},
                        {"command", "train"},
                        {"finished", true},
                        {"step", run.step},
                        {"steps", run.steps},
                        {"folder", run.folder}});
}

std::string json_report(const TrainReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  const StepTotals sum = step_totals(report.result.steps);
  Json json{{"schema", 1},
            {"command", "train"},
            {"stage", name(spec.engine.stage)},
            {"ranks", spec.ranks},
            {"parameters", spec.model.parameters()},
            {"steps", spec.steps},
            {"seed", spec.engine.seed},
            {"precision", precision_name(spec.engine.precision)}};
  json["device"] = spec.device_name();
  if (report.setup.device.on_gpus()) json["tf32"] = report.setup.device.tf32;
  json["threads"] = report.setup.device.threads;
  json["model"] = model_json<Json>(report.setup);
  json["data"] = data_json<Json>(report.setup);
  Json loss = Json::array(), norm = Json::array(), rate = Json::array();
  for (const StepRecord& step : report.result.steps) {
    loss.push_back(step.loss);
    norm.push_back(step.grad_norm);
    rate.push_back(step.lr);
  }
  json["final_loss"] = report.result.steps.back().loss;
  const StepRecord* evaluated = last_evaluated(report.result);
  json["eval_loss"] = evaluated ? Json(*evaluated->eval_loss) : Json(nullptr);
  json.update({{"loss", loss},
               {"grad_norm", norm},
               {"lr", rate},
               {"skipped_steps", sum.skipped},
               {"tokens", sum.tokens},
               {"seconds", sum.seconds},
               {"tokens_per_second", double(sum.tokens) / sum.seconds}});
  const std::optional<Prediction> prediction = prediction_of(report);
  json["memory"] = memory_json(report, prediction);
  json["peak_total_bytes"] = Json::array();
  for (const RankReport& rank : report.result.ranks)
    json["peak_total_bytes"].push_back(rank.rest.peak_total());
  json["communication"] = traffic_json(report, prediction);
  json["communication_seconds"] = communication_seconds(report.result);
  if (const auto moves = measured_moves(report.result); !moves.empty())
    json["moves"] =
        moves_json<Json>(moves, int64_t(report.result.steps.size()), MoveColumns::measured);
  const auto file = [&](size_t i) {
    return i < report.files.size() ? Json(report.files[i]) : Json(nullptr);
  };
  json["files"] = {{"metrics", file(0)}, {"weights", file(1)}};
  if (!report.more_files.empty()) json["files"]["more"] = report.more_files;
  if (report.resumed)
    json["resumed_from"] = {{"folder", report.resumed->folder},
                            {"step", report.resumed->position.step}};
  if (spec.checkpoint.saves()) json["checkpoints"] = checkpoints_json(report.checkpoints);
  json["sample"] = report.sample ? sample_json(*report.sample) : Json(nullptr);
  return json_text(json);
}

}  // namespace zl::cli
