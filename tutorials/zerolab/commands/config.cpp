// zerolab config: checks a configuration file, and explains its settings.

#include "stages/deepspeed/config.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

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

struct ConfigOptions : ConfigSource {
  bool strict = false, json = false;
};

// Settings that cannot be read have one finding, from the error "FILE:LINE: …" or "FILE …".
LoadedConfig load(const ConfigOptions& options) {
  try {
    return load_config(options);
  } catch (const InputError& e) {
    std::string where = options.file, text = e.what();
    if (text.starts_with(where + ":")) {
      where = text.substr(0, text.find(": ", where.size()));
      text.erase(0, where.size() + 2);
    } else if (text.starts_with(where + " ")) {
      text.replace(0, where.size(), "the file");
    }
    return {.findings = {{Severity::error, where, text, ""}}};
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
  auto findings = load(options).findings;
  if (options.strict)
    for (ConfigFinding& f : findings)
      if (f.severity == Severity::warning) f.severity = Severity::error;
  Json document = document_of("config check", options, findings);
  std::string text;
  for (const ConfigFinding& f : findings) text += as_called(to_string(f)) + "\n";
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
    const int64_t n = count(findings, severity);
    document[str(name(severity), "s")] = n;
    text += plural(n, name(severity)) + (severity == Severity::note ? "\n" : ", ");
  }
  std::fputs((options.json ? json_text(document) : text).c_str(), stdout);
  return document["ok"] ? kFine : kUsage;
}

int explain(const ConfigOptions& options) {
  const LoadedConfig loaded = load(options);
  for (const ConfigFinding& f : loaded.findings)
    std::fprintf(stderr, "%s\n", as_called(to_string(f)).c_str());
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

void add_common(Flags& flags, ConfigOptions& options, const char* file) {
  flags.name("FILE", "", file, options.file);
  flags.add("--ranks", "N", options.ranks, count_within(1, 4096),
            "number of ranks, for the batch sizes: up to 4096 (default 4)");
  flags.value(
      "--set", "KEY=VALUE", "one setting; may be given several times",
      [&](const auto& text) { options.sets.push_back(text); }, Flags::Takes::several);
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  CLI::App& config = add_commands(app, "config", "DeepSpeed's JSON: check it, explain it");
  static ConfigOptions checked{{.ranks = 4}}, explained{{.ranks = 4}};
  Flags flags(config, invocation, "check", "find errors in a file, and keys without effect",
              [] { return check(checked); });
  add_common(flags, checked, "a DeepSpeed JSON file");
  flags.required("FILE");
  flags.toggle("--strict", "warnings count as errors", checked.strict);
  flags.footer(kCheckFooter);

  Flags more(config, invocation, "explain", "print every setting with its value and origin",
             [] { return explain(explained); });
  add_common(more, explained, "a DeepSpeed JSON file (default: none)");
  more.footer(kExplainFooter);
}

}  // namespace zl::cli
