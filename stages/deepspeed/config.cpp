#include "stages/deepspeed/config.h"

#include <algorithm>
#include <utility>

#include "nn/gpt.h"
#include "stages/deepspeed/reader.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;
using Json = JsonValue::Kind;

constexpr SmallFile kFile{"configuration", 256 << 10};  // real files have a few KiB
// In stage 3; read_zero() switches overlap_comm off in the others.
constexpr Overlap kDeepSpeedOverlap{.overlap_comm = true,
                                    .prefetch_bucket_size = 50'000'000,
                                    .max_live_parameters = 1'000'000'000,
                                    .max_reuse_distance = 1'000'000'000};
constexpr Swap kDeepSpeedSwap{
    .sub_group_size = 1'000'000'000, .pipeline_read = false, .pipeline_write = false};

JsonValue read_object(const std::string& file) {
  JsonValue root;
  root.kind = Json::object;
  if (file.empty()) return root;
  root = parse_json(read_small_file(file, kFile), file);
  require_input(root.kind == Json::object, file, ":", root.line,
                ": a configuration is one JSON object { … }, not ", describe(root));
  return root;
}

// "zero_optimization": true is DeepSpeed's old form of {"stage": 1}.
void convert_old_zero(JsonValue& root, Findings& findings) {
  for (JsonMember& member : root.members) {
    JsonValue& zero = member.value;
    if (member.key != "zero_optimization" || zero.kind != Json::boolean) continue;
    JsonValue stage = zero;
    stage.kind = Json::number, stage.number = zero.boolean, stage.text = zero.boolean ? "1" : "0";
    findings.add(
        Severity::warning, zero, member.key,
        str(describe(zero), " is a deprecated format: write {\"stage\": ", stage.text, "}"));
    zero.kind = Json::object;
    zero.members.push_back({"stage", stage});
  }
}

void set_source(JsonValue& value, int set) {
  value.set = set;
  for (JsonValue& item : value.items) set_source(item, set);
  for (JsonMember& member : value.members) set_source(member.value, set);
}

// JSON, else a string: --set optimizer.type=AdamW needs no quotes. A text that begins with a
// bracket must be JSON.
JsonValue value_of_set(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool bracket = begin != std::string::npos && (text[begin] == '[' || text[begin] == '{');
  try {
    return parse_json(text, "the value");
  } catch (const InputError& e) {
    if (bracket) throw;
  }
  return {.kind = Json::string, .text = text};
}

// The value of `key` in the object, added if it is missing.
JsonValue& member_of(JsonValue& object, const std::string& key, int set) {
  for (JsonMember& member : object.members)
    if (member.key == key) return member.value;
  object.members.push_back({key, {.set = set}});
  return object.members.back().value;
}

// The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
// Throws InputError.
JsonValue& value_of(const std::string& key, int set, const Findings& findings, JsonValue& root) {
  JsonValue* object = &root;
  for (size_t begin = 0, levels = 0;; ++levels) {
    const size_t dot = key.find('.', begin);
    JsonValue& member = member_of(*object, key.substr(begin, dot - begin), set);
    if (dot == std::string::npos) return member;
    require_input(levels < kJsonDepth, "the key has more than ", kJsonDepth, " levels");
    if (member.is_null() || member.is_auto()) member.kind = Json::object;
    require_input(member.kind == Json::object, in_quotes(key.substr(0, dot)), " is ",
                  describe(member), " in ", findings.where(member), ", not an object");
    object = &member;
    begin = dot + 1;
  }
}

// Applies "a.b=value". Throws InputError.
void apply_set(const std::string& assignment, int set, const Findings& findings, JsonValue& root) {
  const size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  require_input(equals != std::string::npos && ("." + key + ".").find("..") == std::string::npos,
                "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                in_quotes(assignment));
  JsonValue value = value_of_set(assignment.substr(equals + 1));
  set_source(value, set);
  value_of(key, set, findings, root) = std::move(value);
}

// Applies a flag, with a note about another value that it replaces. Throws InputError.
void apply_flag(const KeyFlag& given, int set, Findings& findings, JsonValue& root) {
  JsonValue& value = value_of(given.key, set, findings, root);
  const std::string before = value.text.empty() ? describe(value) : value.text;
  if (!value.is_null() && !value.is_auto() && before != given.text)
    findings.add(Severity::note, value, given.key,
                 str(given.flag, " ", given.text, " replaces ", before));
  value = given.is_string ? JsonValue{.kind = Json::string, .text = given.text}
                          : parse_json(given.text, given.flag);
  value.set = set;
}

// Whether absent keys take DeepSpeed's defaults.
bool read_defaults(ConfigBlock& zerolab) {
  if (zerolab.get<std::string>("defaults") != "deepspeed") return false;
  zerolab.note("defaults",
               "sets the bucket sizes (5e8), overlap_comm (in stage 3), prefetch (5e7), live "
               "parameters, reuse distance and sub_group_size (1e9), pipeline_read and "
               "pipeline_write (false) and gradient_clipping (1.0); DeepSpeed's "
               "persistence thresholds count in the prediction of \"as\": \"deepspeed-3\" only");
  return true;
}

// Adds an error unless the text is one of the names.
void require_one_of(const std::vector<std::string>& names, const std::string& text,
                    ConfigBlock& block, const char* key) {
  std::string all;
  for (const std::string& name : names) {
    if (text == name) return;
    all += (all.empty() ? "" : ", ") + name;
  }
  const std::string nearest = nearest_name(text, names);
  block.error(key, str("expected one of ", all, ", not ", in_quotes(text),
                       nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
}

// "deepspeed-2": one of the presets.
void read_preset(ConfigBlock& zerolab, Config& config) {
  const auto text = zerolab.get<std::string>("as");
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (text == preset.name) config.as = preset.name, config.stage = preset.parent;
    names.push_back(preset.name);
  }
  if (text) require_one_of(names, *text, zerolab, "as");
}

void read_zerolab(ConfigBlock& zerolab, Config& config) {
  read_preset(zerolab, config);
  zerolab.read("separate_master", config.optimizer.separate_master);
  zerolab.read("no_weight_decay", config.optimizer.no_weight_decay);
  zerolab.read("replicas", config.replicas);
  zerolab.read("recompute", config.recompute);
  zerolab.read("replicated_micro_batches", config.replicated_micro_batches);
  zerolab.read("ordered", config.ordered);
  zerolab.read("reproducible", config.reproducible);
  if (config.reproducible && !config.ordered)
    zerolab.error("reproducible",
                  "needs sums in rank order, and \"ordered\" is false; leave one of the two out");
  else if (!config.ordered)
    zerolab.note("ordered",
                 "false lets NCCL or MPI choose the order of sums, so stages agree except for "
                 "rounding; ranks without them still add in rank order");
  config.model = zerolab.get<std::string>("model");
  if (config.model) require_one_of(gpt_names(), *config.model, zerolab, "model");
  config.data = zerolab.get<std::string>("data");
  if (config.data == "") zerolab.error("data", "the name is empty");
  zerolab.read("seed", config.seed);
  zerolab.read("steps", config.steps);
  zerolab.finish();
}

void read_monitor(ConfigBlock block, Monitor& monitor) {
  block.read("enabled", monitor.enabled);
  block.read("output_path", monitor.output_path);
  block.read("job_name", monitor.job_name);
  block.finish();
}

void read_reports(ConfigBlock& top, Config& config) {
  config.steps_per_print = top.get<int64_t>("steps_per_print");
  top.read("wall_clock_breakdown", config.wall_clock_breakdown);
  ConfigBlock logger = top.block("comms_logger");
  CommsLogger& comms = config.comms_logger;
  logger.read("enabled", comms.enabled);
  logger.read("verbose", comms.verbose);
  logger.read("prof_all", comms.prof_all);
  logger.read("prof_ops", comms.prof_ops);
  logger.read("debug", comms.debug);
  if (comms.enabled && comms.prof_all && !comms.prof_ops.empty())
    logger.note("prof_ops", "has no effect while prof_all is true; write \"prof_all\": false");
  logger.finish();
  read_monitor(top.block("csv_monitor"), config.csv_monitor);
  read_monitor(top.block("tensorboard"), config.tensorboard);
}

// The file with every --set and flag applied. A wrong --set is a finding.
JsonValue read_settings(const ConfigSource& source, Findings& findings) {
  JsonValue root = read_object(source.file);
  convert_old_zero(root, findings);
  JsonValue at;  // of a finding
  for (const std::string& assignment : source.sets) {
    ++at.set;
    try {
      apply_set(assignment, at.set, findings, root);
      convert_old_zero(root, findings);
    } catch (const InputError& e) {
      findings.add(Severity::error, at, "", e.what());
    }
  }
  for (const KeyFlag& flag : source.flags) apply_flag(flag, ++at.set, findings, root);
  return root;
}

}  // namespace

const char* name(Severity severity) {
  constexpr const char* names[] = {"note", "warning", "error"};
  return names[int(severity)];
}

std::string to_string(const ConfigFinding& finding) {
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return printable(str(finding.where, ": ", name(finding.severity), ": ",
                       named ? "" : finding.key + ": ", finding.text));
}

bool LoadedConfig::ok() const {
  return std::ranges::count(findings, Severity::error, &ConfigFinding::severity) == 0;
}

LoadedConfig load_config(const ConfigSource& source) {
  Findings findings(source);
  const JsonValue root = read_settings(source, findings);
  ConfigBlock top(findings, root);
  LoadedConfig loaded{.ranks = source.ranks};
  Config& config = loaded.config;
  ConfigBlock zerolab = top.block("zerolab");
  loaded.deepspeed_defaults = read_defaults(zerolab);
  read_zerolab(zerolab, config);
  if (loaded.deepspeed_defaults) {
    config.reduce_bucket_size = config.allgather_bucket_size = 500'000'000;
    config.overlap = kDeepSpeedOverlap;
    config.swap = kDeepSpeedSwap;
  }
  if (loaded.deepspeed_defaults || !source.file.empty()) config.gradient_clipping = 1.0;
  BatchSizes batch = read_batch_sizes(top, readers(config, source.ranks), !source.file.empty());
  config.micro_batch = batch.micro_batch;
  config.accumulation = batch.accumulation;
  loaded.derived = std::move(batch.derived);
  top.read("gradient_clipping", config.gradient_clipping);
  read_optimizer(top.block("optimizer"), config.optimizer);
  read_scheduler(top.block("scheduler"), config, config.schedule);
  read_precision(top, source.precision, config);
  read_zero(top, zerolab, source, config);
  read_activations(top.block("activation_checkpointing"), zerolab, source.ranks, config);
  read_reports(top, config);
  ConfigBlock tensor_parallel = top.block("tensor_parallel");
  for (const char* name : {"tp", "tensor_parallel"}) tensor_parallel.block(name).finish();
  tensor_parallel.finish();
  for (const char* block : {"torch_autocast", "data_efficiency"}) top.block(block).finish();
  top.finish();
  loaded.findings = findings.take();
  loaded.origins = std::move(findings.origins);
  loaded.automatic = std::move(findings.automatic);
  return loaded;
}

int readers(const Config& config, int ranks) { return config.replicated_micro_batches ? 1 : ranks; }

}  // namespace zl
