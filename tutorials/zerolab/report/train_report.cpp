#include "tutorials/zerolab/report/train_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/train/comparison.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  int64_t tokens = 0, skipped = 0;
  double seconds = 0;
};

Totals totals(const TrainingResult& result) {
  Totals sum;
  for (const StepRecord& step : result.steps) {
    sum.tokens += step.tokens;
    sum.seconds += step.seconds;
    sum.skipped += step.skipped;
  }
  return sum;
}

const StepRecord* last_evaluated(const TrainingResult& result) {
  for (auto step = result.steps.rbegin(); step != result.steps.rend(); ++step)
    if (step->eval_loss) return &*step;
  return nullptr;
}

// Length of the UTF-8 sequence that begins at `at`; 0 if there is none.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0; };
  const uint8_t first = byte(at);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const bool overlong =
      (first == 0xe0 && byte(at + 1) < 0xa0) || (first == 0xf0 && byte(at + 1) < 0x90);
  const bool surrogate = first == 0xed && byte(at + 1) >= 0xa0,
             beyond = first == 0xf4 && byte(at + 1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

// Bytes as UTF-8 text without control characters, which could do things to a terminal; "\ufffd"
// where there is none.
std::string printable(const std::vector<int32_t>& bytes) {
  const std::string text(bytes.begin(), bytes.end());
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto first = uint8_t(text[at]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
                         (first == 0xc2 && length == 2 && uint8_t(text[at + 1]) < 0xa0);
    shown += length == 0 || control ? "\ufffd" : text.substr(at, length);
    at += std::max<size_t>(1, length);
  }
  return shown;
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
  char head[32];
  std::snprintf(head, sizeof head, "%-12s", what);
  return head + text + "\n";
}

std::string ledger_text(const char* what, const std::string& of, const MemoryLedger& ledger) {
  std::string text = row(what, "peak " + human_bytes(ledger.peak_total()) + of +
                                   "; by use, at rest and at its own peak:");
  for (int i = 0; i < kMemoryUses; ++i) {
    const auto use = MemoryUse(i);
    if (ledger.peak(use) == 0) continue;
    char line[128];
    std::snprintf(line, sizeof line, "%-12s  %-16s %12s %12s\n", "", name(use),
                  human_bytes(ledger.live(use)).c_str(), human_bytes(ledger.peak(use)).c_str());
    text += line;
  }
  return text;
}

std::string memory_text(const TrainingResult& result) {
  const auto most = std::max_element(result.ranks.begin(), result.ranks.end(),
                                     [](const RankReport& a, const RankReport& b) {
                                       return a.rest.peak_total() < b.rest.peak_total();
                                     });
  const std::string of =
      result.ranks.size() > 1 ? " on rank " + std::to_string(most - result.ranks.begin()) : "";
  const std::string text = ledger_text("memory", of, most->rest);
  return most->host.peak_total() > 0 ? text + ledger_text("host memory", of, most->host) : text;
}

std::string sample_text(const TextSample& sample) {
  if (!sample.missing.empty()) return row("sample", "none: " + sample.missing);
  const std::string how = sample.temperature == 0
                              ? "always the likeliest token"
                              : "temperature " + digits(sample.temperature, 3) +
                                    (sample.top_k > 0 ? str(", top-k ", sample.top_k) : "");
  if (sample.bytes) {
    std::vector<int32_t> all = sample.prompt;
    if (all.size() == 1 && all[0] == '\n') all.clear();
    all.insert(all.end(), sample.tokens.begin(), sample.tokens.end());
    return row("sample", how + ":") + indented(printable(all));
  }
  std::string ids;
  for (const int32_t token : sample.tokens) ids += str(" ", token);
  return row("sample", "token ids after " + str(sample.prompt.at(0)) + ", " + how + ":") + " " +
         ids + "\n";
}

Json memory_json(const TrainingResult& result) {
  Json rows = Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    for (const Pool pool : {Pool::device, Pool::host}) {
      const MemoryLedger& ledger =
          pool == Pool::host ? result.ranks[rank].host : result.ranks[rank].rest;
      for (int i = 0; i < kMemoryUses; ++i) {
        const auto use = MemoryUse(i);
        if (ledger.peak(use) == 0) continue;
        rows.push_back({{"rank", rank},
                        {"pool", name(pool)},
                        {"use", name(use)},
                        {"rest_bytes", ledger.live(use)},
                        {"peak_bytes", ledger.peak(use)}});
      }
    }
  }
  return rows;
}

// Of rank 0, and of one step that makes the communication.
Json traffic_json(const TrainReport& report) {
  Json rows = Json::array();
  const TrainingSpec& spec = report.setup.spec;
  const StepCount count = zl::count(report.result.steps);
  const int64_t ranks = spec.ranks;
  for (const auto& [key, traffic] : report.result.ranks.at(0).log.rows()) {
    const int64_t steps =
        std::max<int64_t>(1, count.with(spec.config.stage.value_or(StageKind::ddp), key.second));
    rows.push_back({{"collective", name(key.first)},
                    {"purpose", name(key.second)},
                    {"calls", traffic.calls / steps},
                    {"elements", traffic.elements / steps},
                    {"sent_bytes_per_rank", traffic.sent_bytes_times_n / ranks / steps}});
  }
  return rows;
}

// Of the whole run, by rank and collective; of these, how long the rank waited for the others.
Json communication_seconds(const TrainingResult& result) {
  Json rows = Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    for (const auto& [collective, time] : result.ranks[rank].log.times())
      rows.push_back({{"rank", rank},
                      {"collective", name(collective)},
                      {"calls", time.calls},
                      {"seconds", double(time.nanoseconds) * 1e-9},
                      {"waited_seconds", double(time.waited) * 1e-9}});
  return rows;
}

Json sample_json(const TextSample& sample) {
  if (!sample.missing.empty()) return nullptr;
  Json json{{"temperature", sample.temperature},
            {"top_k", sample.top_k},
            {"prompt_tokens", sample.prompt},
            {"tokens", sample.tokens}};
  if (sample.bytes) json["text"] = printable(sample.tokens);
  return json;
}

}  // namespace

std::string text_report(const TrainReport& report) {
  const StepRecord &first = report.result.steps.front(), &last = report.result.steps.back();
  const Totals sum = totals(report.result);
  std::string text =
      row("loss", str(digits(last.loss, 6), " at step ", last.step,
                      last.step > 1 ? str(", ", digits(first.loss, 6), " at step 1") : ""));
  if (const StepRecord* evaluated = last_evaluated(report.result))
    text += row("held-out", str(digits(*evaluated->eval_loss, 6), " after step ", evaluated->step));
  if (sum.skipped > 0)
    text += row("skipped",
                str(sum.skipped, " of ", last.step, " steps, as their gradient was not finite",
                    last.loss_scale ? str("; loss scale ", *last.loss_scale, " in the last step")
                                    : "; try a smaller learning rate"));
  text += row("speed", str(short_number(double(sum.tokens) / sum.seconds), " tokens/s, ",
                           digits(1e3 * sum.seconds / double(last.step), 3), " ms per step"));
  text += memory_text(report.result);
  text += report.metrics.empty() ? row("files", "none; --out DIR keeps metrics and weights")
                                 : row("files", report.metrics) + row("", report.weights);
  if (report.sample) text += sample_text(*report.sample);
  return text;
}

std::string json_report(const TrainReport& report) {
  const TrainingSpec& spec = report.setup.spec;
  const GptConfig& m = spec.model;
  const Totals sum = totals(report.result);
  Json json{{"schema", 1},
            {"command", "train"},
            {"stage", name(spec.config.stage.value_or(StageKind::ddp))},
            {"ranks", spec.ranks},
            {"parameters", m.parameters()},
            {"steps", spec.config.steps},
            {"seed", spec.config.seed},
            {"precision", precision_name(spec.config.precision)}};
  json["device"] = name(spec.device);
  if (report.setup.device.on_gpus()) json["tf32"] = report.setup.device.tf32;
  json["model"] = {{"name", report.setup.model.name},
                   {"n_layer", m.layers},
                   {"n_head", m.heads},
                   {"n_embd", m.width},
                   {"block_size", m.block_size},
                   {"vocab_size", m.vocab}};
  json["data"] = {{"name", spec.windows->data().name()},
                  {"window", spec.window},
                  {"training_windows", spec.windows->training()},
                  {"held_out_windows", spec.windows->held_out()}};
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
  json["memory"] = memory_json(report.result);
  json["peak_total_bytes"] = Json::array();
  for (const RankReport& rank : report.result.ranks)
    json["peak_total_bytes"].push_back(rank.rest.peak_total());
  json["communication"] = traffic_json(report);
  json["communication_seconds"] = communication_seconds(report.result);
  json["files"] = {{"metrics", report.metrics.empty() ? Json(nullptr) : Json(report.metrics)},
                   {"weights", report.weights.empty() ? Json(nullptr) : Json(report.weights)}};
  json["sample"] = report.sample ? sample_json(*report.sample) : Json(nullptr);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace zl::cli
