// zerolab config: checks a configuration file, explains its settings, writes a file to start from.

#include "stages/deepspeed/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/deepspeed/keys.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Severity = ConfigFinding::Severity;
using Json = nlohmann::ordered_json;

constexpr const char* kCheckFooter =
    R"(Findings go to stdout, one per line, in the order of the file:
  FILE:LINE: SEVERITY: KEY: the problem, and what to write instead
error    DeepSpeed refuses the key, or it would change results and zerolab cannot honour it
warning  DeepSpeed ignores the key, such as a misspelt one at the top level
note     the key has no effect here, for the reason given

Examples:
  zerolab config check ds_config.json --ranks 8

Exit codes: 0 no errors, 2 errors, or the file is not a JSON object)";

constexpr const char* kExplainFooter =
    R"(The origin of a setting is the file (FILE:LINE), --set, other settings (derived)
or a default. The last column is DeepSpeed's default.

Examples:
  zerolab config explain ds_config.json --ranks 8
  zerolab config explain --set zerolab.defaults=deepspeed

Exit codes: 0 fine, 2 the settings have errors)";

constexpr const char* kInitFooter =
    R"(Comments in the file say what each key does. DeepSpeed can read the file too.

Examples:
  zerolab config init --stage zero3 --precision bf16 > ds_config.json

Exit codes: 0 fine)";

constexpr char kHead[] = R"(// Settings for zerolab and for DeepSpeed, which reads comments too.
{
  // A step takes train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks sequences.
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 1,

  // The largest L2 norm of the gradient; 0 turns clipping off. Without this key a file has 1.0.
  "gradient_clipping": 1.0,

  // Adam, AdamW or SGD. These values are the defaults.
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}
  },

  // WarmupLR, WarmupDecayLR or WarmupCosineLR. Without this block the learning rate is constant.
  // "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001, "warmup_num_steps": 10}},
)";

constexpr char kBf16[] = R"(
  // Parameters, gradients and activations are bf16; the optimizer keeps an fp32 copy. A step whose
  // gradient is not finite is skipped.
  "bf16": {"enabled": true, "check_grad_overflow": true},
)";
constexpr char kFp16[] = R"(
  // Parameters, gradients and activations are fp16; the optimizer keeps an fp32 copy. loss_scale 0
  // is a dynamic scale: it starts at 2^initial_scale_power, doubles after loss_scale_window steps
  // without overflow, and halves after hysteresis overflows.
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000,
           "hysteresis": 2, "min_loss_scale": 1},
)";

constexpr char kOffload[] = R"(
    // Optimizer state in host memory, in stages 2 and 3 also the gradient shard:
    // "offload_optimizer": {"device": "cpu"},)";
constexpr char kOffloadParam[] = R"(
    // Parameter shards in host memory:
    // "offload_param": {"device": "cpu"},)";

constexpr char kTail[] = R"(
    // Elements that are communicated together; absent: one unit at a time.
    // "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8
  },

  // zerolab's own settings, which DeepSpeed ignores. Flags win over all settings of this file.
  "zerolab": {
    "model": "small",      // tiny, small, gpt2, gpt2-medium, …
    "steps": 100,
    "seed": 1337,
    // Activations that backward computes again: "none"; "selective", the outputs of layer norms and
    // GELU; "full", every block, for less memory and more time.
    "recompute": "selective"
  }
}
)";

constexpr const char* kSharded[] = {"every rank has everything (plain data parallelism)",
                                    "each rank has a shard of the optimizer state",
                                    "each rank has a shard of optimizer state and gradients",
                                    "each rank has a shard of all three, parameters too"};

struct ConfigOptions {
  std::string file;
  std::vector<std::string> sets;
  int ranks = 4;
  bool strict = false, json = false, keys = false;
};

// Settings that cannot be read have one finding, from the error "FILE:LINE: …" or "FILE …".
LoadedConfig load(const ConfigOptions& options) {
  try {
    return load_config({.file = options.file, .sets = options.sets, .ranks = options.ranks});
  } catch (const InputError& e) {
    std::string where = options.file, text = e.what();
    if (text.starts_with(where + ":")) {
      where = text.substr(0, text.find(": ", where.size()));
      text.erase(0, where.size() + 2);
    } else if (text.starts_with(where + " ")) {
      text.replace(0, where.size(), "the file");
    }
    LoadedConfig none;
    none.findings.push_back({Severity::error, where, text, ""});
    return none;
  }
}

int64_t count(const std::vector<ConfigFinding>& findings, Severity severity) {
  return std::ranges::count(findings, severity, &ConfigFinding::severity);
}

// The document of a command: its settings, whether they have no error, and all findings.
Json document_of(const char* command, const ConfigOptions& options,
                 const std::vector<ConfigFinding>& findings) {
  Json document{{"schema", 1},
                {"command", command},
                {"file", options.file.empty() ? Json(nullptr) : Json(options.file)},
                {"ranks", options.ranks},
                {"ok", count(findings, Severity::error) == 0},
                {"findings", Json::array()}};
  for (const ConfigFinding& f : findings)
    document["findings"].push_back(
        {{"severity", name(f.severity)}, {"where", f.where}, {"key", f.key}, {"text", f.text}});
  return document;
}

int check(const ConfigOptions& options) {
  if (options.file.empty()) throw UsageError("which file? write: zerolab config check FILE");
  auto findings = load(options).findings;
  if (options.strict)
    for (ConfigFinding& f : findings)
      if (f.severity == Severity::warning) f.severity = Severity::error;
  Json document = document_of("config check", options, findings);
  std::string text;
  for (const ConfigFinding& f : findings) text += to_string(f) + "\n";
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
    const int64_t n = count(findings, severity);
    document[str(name(severity), "s")] = n;
    text += plural(n, name(severity)) + (severity == Severity::note ? "\n" : ", ");
  }
  std::fputs((options.json ? json_text(document) : text).c_str(), stdout);
  return document["ok"] ? kFine : kUsage;
}

int explain(const ConfigOptions& options) {
  if (options.keys) return std::fputs(config_keys_table().c_str(), stdout), kFine;
  const LoadedConfig loaded = load(options);
  for (const ConfigFinding& f : loaded.findings) std::fprintf(stderr, "%s\n", to_string(f).c_str());
  Json document = document_of("config explain", options, loaded.findings);
  const int64_t errors = count(loaded.findings, Severity::error);
  require_input(errors == 0 || options.json, "the settings have ", plural(errors, "error"),
                ", named above; nothing is explained");
  document["settings"] = Json::array();
  const auto value = [](const std::string& json) {
    return json.empty() ? Json() : Json::parse(json);
  };
  for (const ConfigValue& v : errors == 0 ? effective_values(loaded) : std::vector<ConfigValue>())
    document["settings"].push_back({{"key", v.key},
                                    {"value", value(v.value)},
                                    {"origin", v.origin},
                                    {"default", value(v.ours)},
                                    {"deepspeed_default", value(v.deepspeed)},
                                    {"defaults_differ", v.differ}});
  if (!options.json) {
    for (Json& setting : document["settings"])
      for (const char* key : {"default", "defaults_differ"}) setting.erase(key);
    document.erase("findings");
  }
  print_document(document, options.json);
  return errors == 0 ? kFine : kUsage;
}

struct InitOptions {
  StageKind stage = StageKind::zero2;
  Dtype precision = Dtype::f32;
};

// JSON with comments that explain each key.
int init(const InitOptions& options) {
  const int stage = stage_number(options.stage);
  const char* precision = options.precision == Dtype::f16    ? kFp16
                          : options.precision == Dtype::bf16 ? kBf16
                                                             : "";
  std::fputs(str(kHead, precision, "\n  // Stage ", stage, ": ", kSharded[stage],
                 ".\n  \"zero_optimization\": {\n    \"stage\": ", stage, ",",
                 stage > 0 ? kOffload : "", stage == 3 ? kOffloadParam : "", kTail)
                 .c_str(),
             stdout);
  return kFine;
}

StageKind read_paper_stage(const std::string& text) {
  const StageKind stage = read_stage(text);
  require_input(parent(stage) == stage, "'", text, "' is a variant; begin with --stage ",
                name(parent(stage)));
  return stage;
}

void add_common(Flags& flags, ConfigOptions& options, const char* file) {
  flags.name("FILE", "", file, options.file);
  flags.add(
      "--ranks", "N", options.ranks,
      [](const std::string& text) { return read_count(text, 1, 4096); },
      "number of ranks, for the batch sizes: up to 4096 (default 4)");
  flags.value(
      "--set", "KEY=VALUE", "one setting; may be given several times",
      [&](const auto& text) { options.sets.push_back(text); }, Flags::Takes::several);
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  CLI::App& config = *app.add_subcommand("config", "DeepSpeed's JSON: check, explain, start one");
  config.require_subcommand(1);
  static ConfigOptions checked, explained;
  Flags flags(config, invocation, "check", "find errors in a file, and keys without effect",
              [] { return check(checked); });
  add_common(flags, checked, "a DeepSpeed JSON file");
  flags.toggle("--strict", "warnings count as errors", checked.strict);
  flags.footer(kCheckFooter);

  Flags more(config, invocation, "explain", "print every setting with its value and origin",
             [] { return explain(explained); });
  add_common(more, explained, "a DeepSpeed JSON file (default: none)");
  more.toggle("--keys", "print only the table of all known keys, as Markdown", explained.keys);
  more.footer(kExplainFooter);

  static InitOptions options;
  Flags begin(config, invocation, "init", "print a commented file to start from",
              [] { return init(options); });
  begin.add("--stage", "STAGE", options.stage, read_paper_stage,
            "ddp, zero1, zero2 or zero3 (default zero2)");
  begin.add("--precision", "TYPE", options.precision, read_precision,
            "fp32, bf16 or fp16 (default fp32)");
  begin.footer(kInitFooter);
}

}  // namespace zl::cli
