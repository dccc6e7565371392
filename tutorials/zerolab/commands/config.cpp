// zerolab config: what is wrong in a configuration file, what its settings come to, and a file to
// start from.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/config_values.h"
#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/commands/config_template.h"

namespace zl::cli {
namespace {

using Severity = ConfigFinding::Severity;
using Json = nlohmann::ordered_json;

constexpr const char* kCheckFooter =
    R"(Findings go to stdout, one in a line, in the order of the file:
  FILE:LINE: SEVERITY: KEY: what is so, and what to write instead
An error is what DeepSpeed refuses, or what zerolab cannot honour and would change results. A warning is what DeepSpeed
ignores silently, such as a misspelt key of the top level. A note is what has no effect here, and why.

Examples:
  zerolab config check ds_config.json --ranks 8
  zerolab config check ds_config.json --set zero_optimization.stage=3 --strict

Exit codes: 0 no error (there may be warnings and notes), 2 errors, or a file that is no JSON object)";

constexpr const char* kExplainFooter =
    R"(A setting comes from the file (FILE:LINE), from --set, from others (derived: with the arithmetic), or is a default.
"auto" is the default, or what the other settings give. Where DeepSpeed's default is another one, it stands beside.

Examples:
  zerolab config explain                                  the defaults
  zerolab config explain ds_config.json --ranks 8
  zerolab config explain --set zerolab.defaults=deepspeed
  zerolab config explain --keys                           every key that is known, as Markdown

Exit codes: 0 fine, 2 the settings have errors)";

constexpr const char* kInitFooter =
    R"(The file has comments: what each key says and what else it may say. DeepSpeed reads it too.

Examples:
  zerolab config init > ds_config.json
  zerolab config init --stage zero3 --precision bf16 --offload --out ds_config.json

Exit codes: 0 fine, 2 --out exists, or the flags contradict each other)";

constexpr int64_t kMostRanks = 4096;  // only arithmetic is done with them

struct ConfigOptions {
  std::string file;
  std::vector<std::string> sets;
  int ranks = 4;
  bool strict = false, json = false, keys = false;
};

void print(const Json& document) {
  std::printf("%s\n", document.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// The finding for a file that cannot be read or is no JSON object. Its sentence begins with the
// file, and its line if there is one.
ConfigFinding unreadable(const std::string& file, const std::string& sentence) {
  ConfigFinding finding{Severity::error, file, sentence, ""};
  const size_t digits = file.size() + 1, end = sentence.find(": ", digits);
  if (sentence.starts_with(file + ":") && end != std::string::npos &&
      sentence.find_first_not_of("0123456789", digits) == end) {
    finding.where = sentence.substr(0, end);
    finding.text = sentence.substr(end + 2);
  } else if (sentence.starts_with(file + " ")) {
    finding.text = "the file" + sentence.substr(file.size());
  }
  return finding;
}

LoadedConfig load(const ConfigOptions& options) {
  try {
    return load_config({.file = options.file, .sets = options.sets, .ranks = options.ranks});
  } catch (const InputError& e) {
    LoadedConfig none;
    none.findings.push_back(unreadable(options.file, e.what()));
    return none;
  }
}

int64_t count(const std::vector<ConfigFinding>& findings, Severity severity) {
  int64_t n = 0;
  for (const ConfigFinding& f : findings) n += f.severity == severity;
  return n;
}

Json to_json(const std::vector<ConfigFinding>& findings) {
  Json all = Json::array();
  for (const ConfigFinding& f : findings)
    all.push_back(
        {{"severity", name(f.severity)}, {"where", f.where}, {"key", f.key}, {"text", f.text}});
  return all;
}

int check(const ConfigOptions& options) {
  if (options.file.empty()) throw UsageError("which file? write: zerolab config check FILE");
  auto findings = load(options).findings;
  if (options.strict)
    for (ConfigFinding& f : findings)
      if (f.severity == Severity::warning) f.severity = Severity::error;
  const int64_t errors = count(findings, Severity::error),
                warnings = count(findings, Severity::warning),
                notes = count(findings, Severity::note);
  if (options.json) {
    print({{"schema", 1},
           {"command", "config check"},
           {"file", options.file},
           {"ranks", options.ranks},
           {"ok", errors == 0},
           {"errors", errors},
           {"warnings", warnings},
           {"notes", notes},
           {"findings", to_json(findings)}});
  } else {
    for (const ConfigFinding& f : findings) std::printf("%s\n", to_string(f).c_str());
    const auto plural = [](int64_t n, const char* one) {
      return str(n, " ", one, n == 1 ? "" : "s");
    };
    std::printf("%s, %s, %s\n", plural(errors, "error").c_str(),
                plural(warnings, "warning").c_str(), plural(notes, "note").c_str());
  }
  return errors == 0 ? 0 : 2;
}

// Columns to the left, each as wide as its widest cell.
void print_columns(const std::vector<std::array<std::string, 4>>& rows) {
  std::array<size_t, 4> widths{};
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  }
}

int explain(const ConfigOptions& options) {
  if (options.keys) return std::fputs(config_keys_table().c_str(), stdout), 0;
  const LoadedConfig loaded = load(options);
  for (const ConfigFinding& f : loaded.findings) std::fprintf(stderr, "%s\n", to_string(f).c_str());
  const int64_t errors = count(loaded.findings, Severity::error);
  const bool ok = errors == 0;
  require_input(ok || options.json, "the settings have ", errors,
                errors == 1 ? " error" : " errors", ", named above; nothing is explained");
  std::vector<std::array<std::string, 4>> rows = {
      {"key", "value", "from", "DeepSpeed's default, where it differs"}};
  Json settings = Json::array();
  const auto value = [](const std::string& json) {
    return json.empty() ? Json(nullptr) : Json::parse(json);
  };
  for (const ConfigValue& v : ok ? effective_values(loaded) : std::vector<ConfigValue>()) {
    rows.push_back({v.key, v.value, v.origin, v.differ ? v.deepspeed : ""});
    settings.push_back({{"key", v.key},
                        {"value", value(v.value)},
                        {"origin", v.origin},
                        {"default", value(v.ours)},
                        {"deepspeed_default", value(v.deepspeed)},
                        {"defaults_differ", v.differ}});
  }
  if (options.json) {
    print({{"schema", 1},
           {"command", "config explain"},
           {"file", options.file.empty() ? Json(nullptr) : Json(options.file)},
           {"ranks", options.ranks},
           {"ok", ok},
           {"settings", settings},
           {"findings", to_json(loaded.findings)}});
  } else {
    print_columns(rows);
  }
  return ok ? 0 : 2;
}

struct InitOptions : TemplateOptions {
  std::string out;
  bool force = false;
};

int init(const InitOptions& options) {
  if (options.offload && options.stage == StageKind::ddp)
    throw UsageError(
        "--offload has no effect in ddp, which keeps its optimizer state on the device; use "
        "--stage zero1, zero2 or zero3");
  const std::string text = config_template(options);
  if (options.out.empty()) return std::fputs(text.c_str(), stdout), 0;
  require_output_file(options.out, "", options.force);
  PendingFile file(options.out);
  file.write(text.data(), text.size());
  file.commit();
  std::fprintf(stderr, "%s: stage %s; look at it with: zerolab config explain %s\n",
               options.out.c_str(), name(options.stage), options.out.c_str());
  return 0;
}

Dtype read_dtype(const std::string& text) {
  if (text == "fp32") return Dtype::f32;
  if (text == "bf16") return Dtype::bf16;
  require_input(text == "fp16", "'", text, "' is none of fp32, bf16, fp16");
  return Dtype::f16;
}

void add_common(Flags& flags, ConfigOptions& options) {
  flags.value("--ranks", "N", "for the arithmetic of batch sizes (default 4)",
              [&](const auto& text) { options.ranks = int(read_count(text, 1, kMostRanks)); });
  flags.values("--set", "KEY=VALUE", "one setting, as in the file; may be given several times",
               [&](const auto& text) { options.sets.push_back(text); });
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
}

void add_check(CLI::App& config, Invocation& invocation) {
  auto options = std::make_shared<ConfigOptions>();
  Flags flags(config, invocation, "check", "what is wrong in a file, and what has no effect",
              [options] { return check(*options); });
  flags.value("FILE", "", "a DeepSpeed JSON file",
              [options](const auto& text) { options->file = text; });
  add_common(flags, *options);
  flags.toggle("--strict", "warnings count as errors", options->strict);
  flags.footer(kCheckFooter);
}

void add_explain(CLI::App& config, Invocation& invocation) {
  auto options = std::make_shared<ConfigOptions>();
  Flags flags(config, invocation, "explain", "every setting, its value and where that comes from",
              [options] { return explain(*options); });
  flags.value("FILE", "", "a DeepSpeed JSON file (default: none)", [options](const auto& text) {
    require_input(!text.empty(), "the name is empty");
    options->file = text;
  });
  add_common(flags, *options);
  flags.toggle("--keys", "the table of all known keys, as Markdown, and nothing else",
               options->keys);
  flags.footer(kExplainFooter);
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  CLI::App& config = *app.add_subcommand("config", "DeepSpeed's JSON: check, explain, start one");
  config.require_subcommand(1);
  add_check(config, invocation);
  add_explain(config, invocation);
  auto options = std::make_shared<InitOptions>();
  Flags flags(config, invocation, "init", "print a commented file to start from",
              [options] { return init(*options); });
  flags.value("--stage", "STAGE", "ddp, zero1, zero2 or zero3 (default zero2)",
              [options](const auto& text) { options->stage = read_stage(text); });
  flags.value("--precision", "TYPE", "fp32, bf16 or fp16 (default fp32)",
              [options](const auto& text) { options->precision = read_dtype(text); });
  flags.toggle("--offload", "optimizer state in host memory", options->offload);
  flags.value("--out", "FILE", "write there instead of stdout; a file that exists is refused",
              [options](const auto& text) { options->out = text; });
  flags.toggle("--force", "replace FILE if it exists", options->force);
  flags.footer(kInitFooter);
}

}  // namespace zl::cli
