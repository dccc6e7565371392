#include "stages/config.h"

#include <algorithm>

#include "nn/gpt.h"
#include "stages/config_keys.h"
#include "stages/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;
constexpr int64_t kDeepSpeedBucket = 500'000'000;  // [n]

// Whether absent keys take DeepSpeed's defaults.
bool read_defaults(ConfigBlock& zerolab) {
  const std::string defaults = zerolab.text("defaults").value_or("ours");
  if (defaults == "deepspeed") {
    zerolab.add(Severity::note, "defaults", "sets the bucket sizes (5e8) and gradient_clipping (1.0); DeepSpeed's overlap, "
                "prefetch, persistence and reuse distance are not yet honoured");
  } else if (defaults != "ours") {
    zerolab.add(Severity::error, "defaults", "expected \"ours\" or \"deepspeed\", not " + in_quotes(defaults));
  }
  return defaults == "deepspeed";
}

void read_model(ConfigBlock& zerolab, Config& config) {
  config.model = zerolab.text("model");
  const auto& names = gpt_names();
  if (!config.model || std::find(names.begin(), names.end(), *config.model) != names.end()) return;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(*config.model, names);
  zerolab.add(Severity::error, "model", str("expected one of ", all, ", not ", in_quotes(*config.model),
                                            nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
}

void read_zerolab(ConfigBlock& zerolab, Config& config) {
  if (zerolab.boolean("reproducible").value_or(false)) {
    zerolab.add(Severity::error, "reproducible", "not yet: equal bits for every number of ranks come with a later version; "
                "leave it out or write false");
  }
  if (zerolab.boolean("ordered")) {
    zerolab.add(Severity::note, "ordered", "has no effect yet: ranks are threads, which always add in rank order");
  }
  config.optimizer.separate_master = zerolab.boolean("separate_master").value_or(false);
  if (const auto globs = zerolab.texts("no_weight_decay")) config.optimizer.no_weight_decay = *globs;
  config.recompute = zerolab.boolean("recompute").value_or(config.recompute);
  read_model(zerolab, config);
  config.data = zerolab.text("data");
  config.seed = zerolab.seed("seed").value_or(config.seed);
  config.steps = zerolab.whole("steps", {.least = 1}).value_or(config.steps);
  zerolab.finish();
}

// "zero_optimization": true is DeepSpeed's old way to say stage 1.
bool read_deprecated_zero(ConfigBlock& top, Config& config) {
  const JsonValue* value = top.peek("zero_optimization");
  if (value == nullptr || value->kind != JsonValue::Kind::boolean) return false;
  top.take("zero_optimization");
  config.stage = value->boolean ? StageKind::zero1 : StageKind::ddp;
  top.add(Severity::warning, "zero_optimization",
          str(describe(*value), " is a deprecated format: write {\"stage\": ", value->boolean ? 1 : 0, "}"));
  return true;
}

void read_zero(ConfigBlock& top, Config& config) {
  if (read_deprecated_zero(top, config)) return;
  ConfigBlock zero = top.block("zero_optimization");
  const JsonValue* stage = zero.peek("stage");
  if (stage != nullptr && stage->kind == JsonValue::Kind::boolean) {  // as pydantic takes it
    zero.take("stage");
    config.stage = stage->boolean ? StageKind::zero1 : StageKind::ddp;
  } else if (const auto number = zero.whole("stage", {0, 3, true, "stage Input should be 0, 1, 2, 3 or 3"})) {
    config.stage = kStages[*number];
  }
  const ConfigBlock::WholeRange bucket{.text_too = true, .deepspeed = "Input should be greater than or equal to 0"};
  config.reduce_bucket_size = zero.whole("reduce_bucket_size", bucket).value_or(config.reduce_bucket_size);
  config.allgather_bucket_size = zero.whole("allgather_bucket_size", bucket).value_or(config.allgather_bucket_size);
  zero.finish();
}

void read_comms_logger(ConfigBlock block, CommsLogger& logger) {
  logger.enabled = block.boolean("enabled").value_or(logger.enabled);
  logger.verbose = block.boolean("verbose").value_or(logger.verbose);
  logger.prof_all = block.boolean("prof_all").value_or(logger.prof_all);
  logger.prof_ops = block.texts("prof_ops").value_or(logger.prof_ops);
  logger.debug = block.boolean("debug").value_or(logger.debug);
  block.finish();
}

void read_csv_monitor(ConfigBlock block, CsvMonitor& monitor) {
  monitor.enabled = block.boolean("enabled").value_or(monitor.enabled);
  monitor.output_path = block.text("output_path").value_or(monitor.output_path);
  monitor.job_name = block.text("job_name").value_or(monitor.job_name);
  block.finish();
}

void read_reports(ConfigBlock& top, Config& config) {
  config.steps_per_print = top.whole("steps_per_print", {.least = 1});
  config.wall_clock_breakdown = top.boolean("wall_clock_breakdown").value_or(config.wall_clock_breakdown);
  read_comms_logger(top.block("comms_logger"), config.comms_logger);
  read_csv_monitor(top.block("csv_monitor"), config.csv_monitor);
}

void find_duplicates(const JsonDocument& document, ConfigFindings& findings) {
  for (const JsonDuplicate& d : document.duplicates) {
    const std::string name = d.path.substr(d.path.rfind('.') + 1);
    findings.add_at_line(Severity::error, d.line, in_quotes(d.path).substr(1, in_quotes(d.path).size() - 2),
                         str("Duplicate keys in DeepSpeed config: ['", name, "']; the first is in line ", d.first_line));
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
    line += code == '\n' ? "\\n" : code == '\t' ? "\\t" : str("\\u00", "0123456789abcdef"[code / 16], "0123456789abcdef"[code % 16]);
    i += pair;
  }
  return line;
}

}  // namespace

std::string to_string(const ConfigFinding& finding) {
  constexpr const char* names[] = {"note", "warning", "error"};
  const std::string line = finding.where + ": " + names[int(finding.severity)] + ": ";
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return on_one_line(line + (named ? "" : finding.key + ": ") + finding.text);
}

bool LoadedConfig::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const ConfigFinding& f) { return f.severity == ConfigFinding::Severity::error; });
}

LoadedConfig load_config(const ConfigSource& source) {
  const ConfigText text = read_config_text(source);
  ConfigFindings findings(source.file, text.set_keys);
  find_duplicates(text.document, findings);
  ConfigBlock top(findings, text.document.root);

  Config config;
  config.from_file = !source.file.empty() || !source.sets.empty();
  ConfigBlock zerolab = top.block("zerolab");
  const bool deepspeed_defaults = read_defaults(zerolab);
  read_zerolab(zerolab, config);
  if (deepspeed_defaults) config.reduce_bucket_size = config.allgather_bucket_size = kDeepSpeedBucket;
  const BatchSizes batch = read_batch_sizes(top, source.ranks, !source.file.empty());
  config.micro_batch = batch.micro_batch;
  config.accumulation = batch.accumulation;
  const double default_clipping = deepspeed_defaults || !source.file.empty() ? 1.0 : 0.0;
  config.gradient_clipping = top.number("gradient_clipping", 0).value_or(default_clipping);
  read_optimizer(top.block("optimizer"), config.optimizer);
  read_scheduler(top.block("scheduler"), config, config.schedule);
  read_zero(top, config);
  read_reports(top, config);
  top.finish();

  LoadedConfig loaded{config, findings.take(), findings.origins()};
  loaded.findings.insert(loaded.findings.end(), text.findings.begin(), text.findings.end());
  return loaded;
}

}  // namespace zl
