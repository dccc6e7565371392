#include "stages/deepspeed/config.h"

#include <algorithm>

#include "nn/gpt.h"
#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;
constexpr int64_t kDeepSpeedBucket = 500'000'000;  // [n]

// Whether absent keys take DeepSpeed's defaults.
bool read_defaults(ConfigBlock& zerolab) {
  if (zerolab.text("defaults").value_or("ours") != "deepspeed") return false;
  zerolab.add(
      Severity::note, "defaults",
      "sets the bucket sizes (5e8) and gradient_clipping (1.0); DeepSpeed's overlap, prefetch, "
      "persistence and reuse distance have no effect yet");
  return true;
}

void read_model(ConfigBlock& zerolab, Config& config) {
  config.model = zerolab.text("model");
  const auto& names = gpt_names();
  if (!config.model || std::find(names.begin(), names.end(), *config.model) != names.end()) return;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(*config.model, names);
  zerolab.add(Severity::error, "model",
              str("expected one of ", all, ", not ", in_quotes(*config.model),
                  nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
}

void read_zerolab(ConfigBlock& zerolab, Config& config) {
  config.optimizer.separate_master = zerolab.boolean("separate_master").value_or(false);
  if (const auto globs = zerolab.texts("no_weight_decay"))
    config.optimizer.no_weight_decay = *globs;
  assign(config.recompute, zerolab.boolean("recompute"));
  assign(config.ordered, zerolab.boolean("ordered"));
  if (!config.ordered)
    zerolab.add(Severity::note, "ordered",
                "false lets NCCL add as it likes, so that stages agree but for rounding; ranks "
                "without NCCL add in rank order all the same");
  read_model(zerolab, config);
  config.data = zerolab.path("data");
  if (config.data == "") zerolab.add(Severity::error, "data", "the name is empty");
  assign(config.seed, zerolab.seed("seed"));
  assign(config.steps, zerolab.whole("steps"));
  zerolab.finish();
}

void find_duplicates(const JsonDocument& document, ConfigFindings& findings) {
  for (const JsonDuplicate& d : document.duplicates) {
    const std::string name = d.path.substr(d.path.rfind('.') + 1);
    findings.add_at_line(Severity::error, d.line,
                         in_quotes(d.path).substr(1, in_quotes(d.path).size() - 2),
                         str("Duplicate keys in DeepSpeed config: ['", name,
                             "']; the first is in line ", d.first_line));
  }
}

// Keys may hold anything that JSON can escape: here a control character becomes an escape again.
std::string on_one_line(const std::string& text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = uint8_t(text[i]), next = uint8_t(i + 1 < text.size() ? text[i + 1] : 0);
    const bool pair = c == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F in UTF-8
    if (c >= 0x20 && c != 0x7f && !pair) {
      line += text[i];
      continue;
    }
    const unsigned code = pair ? next : c;
    line += code == '\n' ? "\\n"
            : code == '\t'
                ? "\\t"
                : str("\\u00", "0123456789abcdef"[code / 16], "0123456789abcdef"[code % 16]);
    i += pair;
  }
  return line;
}

}  // namespace

const char* name(Severity severity) {
  constexpr const char* names[] = {"note", "warning", "error"};
  return names[int(severity)];
}

std::string to_string(const ConfigFinding& finding) {
  const std::string line = finding.where + ": " + name(finding.severity) + ": ";
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return on_one_line(line + (named ? "" : finding.key + ": ") + finding.text);
}

bool LoadedConfig::ok() const {
  return std::none_of(findings.begin(), findings.end(), [](const ConfigFinding& f) {
    return f.severity == ConfigFinding::Severity::error;
  });
}

LoadedConfig load_config(const ConfigSource& source) {
  const ConfigText text = read_config_text(source);
  ConfigFindings findings(source.file, text.set_keys);
  find_duplicates(text.document, findings);
  find_nulls(text.document.root, findings);
  ConfigBlock top(findings, text.document.root);

  Config config;
  config.from_file = !source.file.empty() || !source.sets.empty();
  ConfigBlock zerolab = top.block("zerolab");
  const bool deepspeed_defaults = read_defaults(zerolab);
  read_zerolab(zerolab, config);
  if (deepspeed_defaults)
    config.reduce_bucket_size = config.allgather_bucket_size = kDeepSpeedBucket;
  BatchSizes batch = read_batch_sizes(top, source.ranks, !source.file.empty());
  config.micro_batch = batch.micro_batch;
  config.accumulation = batch.accumulation;
  const double default_clipping = deepspeed_defaults || !source.file.empty() ? 1.0 : 0.0;
  config.gradient_clipping = top.number("gradient_clipping").value_or(default_clipping);
  read_optimizer(top.block("optimizer"), config.optimizer);
  read_scheduler(top.block("scheduler"), config, config.schedule);
  read_precision(top, source.precision, config);
  read_zero(top, source, config);
  read_reports(top, config);
  ConfigBlock tensor_parallel = top.block("tensor_parallel");
  for (const char* name : {"tp", "tensor_parallel"}) tensor_parallel.block(name).finish();
  tensor_parallel.finish();
  for (const char* block : {"torch_autocast", "data_efficiency"}) top.block(block).finish();
  top.finish();

  LoadedConfig loaded{config,
                      findings.take(),
                      findings.origins(),
                      findings.automatic(),
                      std::move(batch.derived),
                      source.ranks,
                      deepspeed_defaults};
  loaded.findings.insert(loaded.findings.end(), text.findings.begin(), text.findings.end());
  return loaded;
}

}  // namespace zl
