#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <limits>
#include <regex>

#include "tensor/error.h"
#include "tensor/io/small_file.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;
using enum ConfigUse;
using enum ConfigFinding::Severity;

constexpr SmallFile kFile{"configuration", 256 << 10};  // real files have a few KiB

// Whether DeepSpeed declares types in this block (with pydantic).
bool is_typed(const std::string& block) {
  static const std::regex typed(
      "(zero_optimization|tensor_parallel|fp16|bf16|comms_logger|csv_monitor|tensorboard)(\\..*)?");
  return std::regex_match(block, typed);
}

// A key as a finding shows it: a long one is cut.
std::string shown_key(const std::string& key) {
  return key.size() <= 100 ? key : in_quotes(key, 60);
}

// Whether a value switches its feature off: false, null, "auto", {}, or "enabled" is one of them.
bool is_off(const JsonValue& value) {
  const JsonValue* enabled = value.find("enabled");
  return value.is_absent() || value.text == "false" || (enabled && is_off(*enabled)) ||
         (value.kind == Json::object && value.items.empty());
}

// Whether this is how zerolab always works.
bool is_as_always(const ConfigKey& key, const JsonValue& value) {
  if (key.always.empty()) return is_off(value);
  return key.always ==
         (value.kind == Json::number ? shortest(value.number) : lower_case(value.text));
}

// JSON, else a string: --set optimizer.type=AdamW needs no quotes. A text that begins with a
// bracket must be JSON.
JsonValue value_of_set(const std::string& text, const std::string& where) try {
  return parse_json(text, "the value", where);
} catch (const InputError&) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != text.npos && (text[begin] == '[' || text[begin] == '{')) throw;
  return {.kind = Json::string, .text = text, .where = where};
}

}  // namespace

void Reading::read_text() {
  if (!source.file.empty()) root_ = parse_json(read_small_file(source.file, kFile), source.file);
  require_input(root_.kind == Json::object, root_.where,
                ": a configuration is one JSON object { … }, not ", describe(root_));
  for (const std::string& assignment : source.sets) {
    const size_t equals = assignment.find('=');
    const std::string key = assignment.substr(0, equals), where = "--set " + shown_key(key);
    try {
      require_input(equals != key.npos && ("." + key + ".").find("..") == key.npos,
                    "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                    in_quotes(assignment));
      put(key, value_of_set(assignment.substr(equals + 1), where));
    } catch (const InputError& e) {
      add_at({.where = where}, error, "", e.what());
    }
  }
  for (const auto& [flag, key, text, is_string] : source.flags) {
    const JsonValue before = value_at(key, flag);
    const std::string was = before.text.empty() ? describe(before) : before.text;
    if (!before.is_absent() && was != text)
      add_at(before, note, key, str(flag, " ", text, " replaces ", was), true);
    put(key, is_string ? JsonValue{.kind = Json::string, .text = text, .where = flag}
                       : parse_json(text, flag, flag));
  }
}

// The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
// Throws InputError.
JsonValue& Reading::value_at(const std::string& key, const std::string& where) {
  require_input(std::ranges::count(key, '.') < kJsonDepth, "the key has more than ", kJsonDepth,
                " levels");
  JsonValue* value = &root_;
  for (size_t begin = 0, end = 0; end != key.npos; begin = end + 1) {
    if (value->is_absent()) value->kind = Json::object;
    require_input(value->kind == Json::object, in_quotes(key.substr(0, begin - 1)), " is ",
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

void Reading::put(const std::string& key, JsonValue value) {
  value.key = key.substr(key.rfind('.') + 1);
  value_at(key, value.where) = std::move(value);
}

void Reading::add_at(const JsonValue& at, Severity severity, const std::string& key,
                     const std::string& text, bool of_flag) {
  const int line = is_in_file(at) ? at.line : std::numeric_limits<int>::max();
  loaded.findings.push_back({severity, at.where, text, shown_key(key), of_flag, line});
}

const JsonValue* Reading::value(const std::string& name) const {
  return has(name) && !is_auto(name) && !is_wrong(name) ? seen_.at(name).value : nullptr;
}

void Reading::add_text(Severity severity, const std::string& name, const std::string& text) {
  if (has(name)) return add_at(*seen_.at(name).value, severity, seen_.at(name).path, text);
  std::string near = name;
  while (!near.empty() && !has(near))
    near.resize(near.find('.') == near.npos ? 0 : near.rfind('.'));
  add_at(near.empty() ? root_ : *seen_.at(near).value, severity, name, text);
}

Config Reading::as_run() const {
  Config run = config;
  run.stage = source.stage.value_or(config.stage);
  run.precision = source.precision.value_or(config.precision);
  if (source.several_stages) run.stage = StageKind::zero3, run.as = "deepspeed-3";
  return run;
}

void Reading::walk(const JsonValue& object, const std::string& path, const std::string& block) {
  const JsonValue* type = object.find("type");
  const bool has_no_type = block == "scheduler" && (!type || type->is_absent());
  for (const bool is_type : {true, false})  // the type says which parameters there are
    for (const JsonValue& member : object.items) {
      if ((&member == type) != is_type) continue;
      const std::string written =
          str(path, path.empty() ? "" : ".", member.key.empty() ? "\"\"" : member.key);
      // DeepSpeed knows two names of a key: "stage3_…" without its beginning too.
      const ConfigKey* row = find_key(keys_, block, "stage3_" + member.key);
      if (!row) row = find_key(keys_, block, written == "bfloat16" ? "bf16" : member.key);
      if (!row) unknown(member, written, block);
      if (!row || member.kind == Json::null) continue;
      const std::string name = row->path();
      const auto [seen, is_new] = seen_.emplace(name, Seen{&member, written});
      if (!is_new)
        add_at(member, error, written,
               str("is the same key as ", seen->second.path, "; leave one of the two out"));
      else if (member.is_auto())
        loaded.automatic[name] = member.where;
      else
        read(name, *row, seen->second);
      const bool skipped = row->key == "params" && (has_no_type || is_wrong(block + ".type"));
      if (row->use == ConfigUse::block && is_new && value(name) && !skipped)
        walk(member, written, name);
    }
}

void Reading::read(const std::string& name, const ConfigKey& key, Seen& seen) {
  const JsonValue& value = *seen.value;
  if (key.use == block) {
    seen.wrong = value.kind != Json::object;
    if (seen.wrong) add(error, name, "expected an object, not ", describe(value));
  } else if (key.use == honoured) {
    ConfigFit fit = key.member.store(value);
    if (!fit.fits && is_typed(key.block) && (value.text == "true" || value.text == "false"))
      fit = key.member.store({.kind = Json::boolean, .text = value.text});
    const std::string nearest = nearest_name(value.text, fit.choices);
    seen.wrong = !fit.fits;
    if (seen.wrong)
      return add(error, name, "expected ", fit.type, ", not ", describe(value),
                 nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?"));
    const bool same = seen.path == name || !is_in_file(value);
    loaded.origins[name] = value.where + (same ? "" : ": " + seen.path);
  } else if (const bool as_always = is_as_always(key, value); key.use == dead) {
    add(as_always || is_off(value) ? warning : error, name,
        "DeepSpeed 0.19.8 refuses a file with this key; leave it out: ", key.reason);
  } else if (!as_always) {
    add(key.use == refused ? error : note, name,
        key.use == refused ? "cannot be honoured: " : "has no effect: ", key.reason);
  }
}

void Reading::unknown(const JsonValue& member, const std::string& path, const std::string& block) {
  std::vector<std::string> names, homes;
  for (const ConfigKey& key : keys_) {
    if (key.block == block) names.emplace_back(key.key);
    if (key.key == member.key)
      homes.push_back(key.block.empty() ? "at the top level" : str("in \"", key.block, "\""));
  }
  const bool refused = is_typed(block) || block.ends_with(".params") || block == "zerolab";
  const std::string nearest = nearest_name(member.key, names);
  std::string text = "unknown key";
  if (!nearest.empty())
    text += str("; did you mean \"", nearest, "\"?");
  else if (!homes.empty() && homes.size() <= 2)  // a name in many blocks says nothing
    text += "; it belongs " + homes[0] + (homes.size() > 1 ? " or " + homes[1] : "");
  if (block != "zerolab") text += refused ? " (DeepSpeed refuses it)" : " (DeepSpeed ignores it)";
  add_at(member, refused ? error : warning, path, text);
}

void Reading::judge_unused(Config& defaults) {
  Config run = as_run();
  const std::vector<ConfigKey> used = config_keys(run), before = config_keys(defaults);
  for (size_t i = 0; i < keys_.size(); ++i) {
    const ConfigCondition& when = used[i].when;
    const std::string name = keys_[i].path();
    if (when.holds || !value(name)) continue;
    if (when.otherwise == ConfigCondition::Otherwise::error)
      add(error, name, when.reason);
    else if (when.otherwise == ConfigCondition::Otherwise::note ||
             keys_[i].value() != before[i].value())
      add(note, name, "has no effect: ", when.reason);
  }
}

}  // namespace zl
