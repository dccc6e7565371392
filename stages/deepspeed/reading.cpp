#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <limits>

#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Kind = JsonValue::Kind;
using enum ConfigFinding::Severity;

constexpr SmallFile kFile{"configuration", 256 << 10};  // real files have a few KiB

// Blocks in which DeepSpeed ignores a key that it does not know.
constexpr std::string_view kLoose[] = {
    "",           "optimizer",      "scheduler",      "activation_checkpointing",
    "data_types", "torch_autocast", "data_efficiency"};

// A key as a finding shows it: a long one is cut.
std::string shown_key(const std::string& key) {
  return key.size() <= 100 ? key : in_quotes(key, 60);
}

// Whether a value of a key without effect asks for nothing: it is what zerolab always does, or
// false, null, "auto", {}, or "enabled" is one of them.
bool asks_for_nothing(const JsonValue& value, const std::string& always) {
  const JsonValue* enabled = value.find("enabled");
  if (!always.empty() && value.kind == Kind::number) return always == str(value.number);
  if (!always.empty()) return always == lower_case(value.text);
  return value.is_absent() || value.text == "false" ||
         (enabled && asks_for_nothing(*enabled, "")) ||
         (value.kind == Kind::object && value.items.empty());
}

// JSON, else a string: --set optimizer.type=AdamW needs no quotes. A text that begins with a
// bracket must be JSON.
JsonValue value_of_set(const std::string& text, const std::string& where) try {
  return parse_json(text, "the value", where);
} catch (const InputError&) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != text.npos && (text[begin] == '[' || text[begin] == '{')) throw;
  return {.kind = Kind::string, .text = text, .where = where};
}

// The value of the same key.
void replace(JsonValue& value, JsonValue by) {
  by.key = value.key;
  value = std::move(by);
}

}  // namespace

void Reading::read_text() {
  if (!source.file.empty()) root = parse_json(read_small_file(source.file, kFile), source.file);
  require_input(root.kind == Kind::object, root.where,
                ": a configuration is one JSON object { … }, not ", describe(root));
  for (const std::string& assignment : source.sets) {
    const size_t equals = assignment.find('=');
    const std::string key = assignment.substr(0, equals), where = "--set " + shown_key(key);
    try {
      require_input(equals != key.npos && ("." + key + ".").find("..") == key.npos,
                    "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                    in_quotes(assignment));
      JsonValue value = value_of_set(assignment.substr(equals + 1), where);
      replace(value_at(key, where), std::move(value));
    } catch (const InputError& e) {
      add_at({.where = where}, error, "", e.what());
    }
  }
  for (const auto& [flag, key, text, is_string] : source.flags) {
    JsonValue& value = value_at(key, flag);
    const std::string was = value.text.empty() ? describe(value) : value.text;
    if (!value.is_absent() && was != text)
      add_at(value, note, key, str(flag, " ", text, " replaces ", was), true);
    replace(value, is_string ? JsonValue{.kind = Kind::string, .text = text, .where = flag}
                             : parse_json(text, flag, flag));
  }
}

// The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
// Throws InputError.
JsonValue& Reading::value_at(const std::string& key, const std::string& where) {
  require_input(std::ranges::count(key, '.') < kJsonDepth, "the key has more than ", kJsonDepth,
                " levels");
  JsonValue* value = &root;
  for (size_t begin = 0, end = 0; end != key.npos; begin = end + 1) {
    if (value->is_absent()) value->kind = Kind::object;
    require_input(value->kind == Kind::object, in_quotes(key.substr(0, begin - 1)), " is ",
                  describe(*value), " in ", value->where, ", not an object");
    end = key.find('.', begin);
    const std::string name = key.substr(begin, end - begin);
    auto member = std::ranges::find(value->items, name, &JsonValue::key);
    if (member == value->items.end())
      member = value->items.insert(member, JsonValue{.key = name, .where = where});
    value = &*member;
  }
  return *value;
}

void Reading::add_at(const JsonValue& at, Severity severity, const std::string& key,
                     const std::string& text, bool of_flag) {
  const int line = at.line > 0 ? at.line : std::numeric_limits<int>::max();
  loaded.findings.push_back({severity, at.where, text, shown_key(key), of_flag, line});
}

void Reading::add_text(Severity severity, const std::string& name, const std::string& text) {
  if (severity == error && has(name)) seen.at(name).wrong = true;
  std::string near = name;
  while (!near.empty() && !has(near))
    near.resize(near.find('.') == near.npos ? 0 : near.rfind('.'));
  add_at(near.empty() ? root : *seen.at(near).value, severity, name, text);
}

Config Reading::as_run() const {
  Config run = config;
  run.stage = source.stage.value_or(config.stage);
  run.precision = source.precision.value_or(config.precision);
  if (source.several_stages) run.stage = StageKind::zero3, run.as = "deepspeed-3";
  return run;
}

void Reading::walk(JsonValue& object, const std::string& block) {
  // Objects come last: a type says which parameters there are.
  const auto is_value = [](const JsonValue& member) { return member.kind != Kind::object; };
  std::stable_partition(object.items.begin(), object.items.end(), is_value);
  for (JsonValue& member : object.items) {
    const ConfigKey given{.key = member.key.empty() ? "\"\"" : member.key, .block = block};
    // DeepSpeed knows two names of a key: "stage3_…" without its beginning too.
    const ConfigKey* row = find_key(keys, block, "stage3_" + member.key);
    if (!row) row = find_key(keys, block, given.path() == "bfloat16" ? "bf16" : member.key);
    if (!row) unknown(member, given);
    if (!row || member.kind == Kind::null) continue;
    const std::string name = row->path(), type = block + ".type";
    const auto [at, is_new] = seen.emplace(name, Seen{&member});
    if (!is_new)
      add_at(member, error, given.path(),
             "is the same key as " + name + "; leave one of the two out");
    else if (member.is_auto())
      loaded.automatic[name] = member.where;
    else if (row->member.store)
      store(name, *row, at->second);
    const bool has_type = block == "scheduler" ? value(type) != nullptr : !is_wrong(type);
    if (is_new && row->member.store && value(name) && member.kind == Kind::object &&
        (has_type || row->key != "params"))
      walk(member, name);
  }
}

void Reading::store(const std::string& name, const ConfigKey& key, Seen& given) {
  const std::string before = key.value(), expected = key.member.store(*given.value),
                    nearest = nearest_name(given.value->text, key.member.names);
  given.is_default = key.value() == before;
  loaded.origins[name] = given.value->where;
  if (!expected.empty())
    add(error, name, "expected ", expected, ", not ", describe(*given.value),
        nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

void Reading::unknown(const JsonValue& member, const ConfigKey& given) {
  std::vector<std::string> names, homes;
  for (const ConfigKey& key : keys) {
    if (key.block == given.block) names.push_back(key.key);
    if (key.key == given.key) homes.push_back(key.block);
  }
  const bool ignored = std::ranges::count(kLoose, given.block) > 0;
  std::string text = "unknown key";
  if (const std::string nearest = nearest_name(given.key, names); !nearest.empty())
    text += "; did you mean \"" + nearest + "\"?";
  else if (!homes.empty() && homes.size() <= 2)  // a name in many blocks says nothing
    text += "; it belongs " + (homes[0].empty() ? "at the top level" : "in \"" + homes[0] + "\"");
  if (given.block != "zerolab")
    text += ignored ? " (DeepSpeed ignores it)" : " (DeepSpeed refuses it)";
  add_at(member, ignored && member.line > 0 ? warning : error, given.path(), text);
}

void Reading::judge_unused() {
  Config run = as_run();
  for (const ConfigKey& key : config_keys(run)) {
    const std::string name = key.path();
    const auto& [reason, refused] = key.unused;
    if (reason.empty() || !value(name)) continue;
    const bool honoured = key.member.store != nullptr;
    if (honoured ? seen.at(name).is_default && !refused
                 : asks_for_nothing(*value(name), key.always))
      continue;
    add(refused ? error : note, name,
        honoured && refused ? ""
        : refused           ? "cannot be honoured: "
                            : "has no effect: ",
        reason);
  }
}

const char* name(ConfigFinding::Severity severity) {
  constexpr const char* names[] = {"note", "warning", "error"};
  return names[int(severity)];
}

std::string to_string(const ConfigFinding& finding) {
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return printable(str(finding.where, ": ", name(finding.severity), ": ",
                       named ? "" : finding.key + ": ", finding.text));
}

bool LoadedConfig::ok() const {
  return std::ranges::count(findings, error, &ConfigFinding::severity) == 0;
}

LoadedConfig load_config(const ConfigSource& source) {
  LoadedConfig loaded;
  Reading reading{source, loaded};
  reading.read_text();
  const JsonValue* ours = reading.root.find("zerolab");
  const JsonValue* defaults = ours ? ours->find("defaults") : nullptr;
  for (const ConfigKey& key : reading.keys)
    if (defaults && defaults->text == "deepspeed" && !key.deepspeed.empty())
      key.member.store(parse_json(key.deepspeed, "the table"));
  if (!source.file.empty()) {
    loaded.config.gradient_clipping = 1.0;
    reading.derive("gradient_clipping", "DeepSpeed's default, as a file is given");
  }
  reading.walk(reading.root, "");
  apply_rules(reading);
  reading.judge_unused();
  std::ranges::stable_sort(loaded.findings, {}, &ConfigFinding::line);
  return loaded;
}

}  // namespace zl
