#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <limits>

#include "tensor/io/small_file.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;
using enum ConfigUse;
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

// Whether a value switches its feature off: false, null, "auto", {}, or "enabled" is one of them.
bool is_off(const JsonValue& value) {
  const JsonValue* enabled = value.find("enabled");
  return value.is_absent() || value.text == "false" || (enabled && is_off(*enabled)) ||
         (value.kind == Json::object && value.items.empty());
}

// Whether this is how zerolab always works.
bool is_as_always(std::string_view always, const JsonValue& value) {
  if (always.empty()) return is_off(value);
  return always == (value.kind == Json::number ? shortest(value.number) : lower_case(value.text));
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

// The value of the same key.
void replace(JsonValue& value, JsonValue by) {
  by.key = std::move(value.key);
  value = std::move(by);
}

}  // namespace

void Reading::read_text() {
  if (!source.file.empty()) root = parse_json(read_small_file(source.file, kFile), source.file);
  require_input(root.kind == Json::object, root.where,
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
    replace(value, is_string ? JsonValue{.kind = Json::string, .text = text, .where = flag}
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

const JsonValue* Reading::value(const std::string& name) const {
  return has(name) && !is_auto(name) && !is_wrong(name) ? seen.at(name).value : nullptr;
}

void Reading::add_at(const JsonValue& at, Severity severity, const std::string& key,
                     const std::string& text, bool of_flag) {
  const int line = is_in_file(at) ? at.line : std::numeric_limits<int>::max();
  loaded.findings.push_back({severity, at.where, text, shown_key(key), of_flag, line});
}

void Reading::add_text(Severity severity, const std::string& name, const std::string& text) {
  if (severity == error && has(name)) seen.at(name).wrong = true;
  std::string near = name;
  while (!near.empty() && !has(near))
    near.resize(near.find('.') == near.npos ? 0 : near.rfind('.'));
  const Seen here = near.empty() ? Seen{&root, ""} : seen.at(near);
  add_at(*here.value, severity, near == name ? here.path : name, text);
}

Config Reading::as_run() const {
  Config run = config;
  run.stage = source.stage.value_or(config.stage);
  run.precision = source.precision.value_or(config.precision);
  if (source.several_stages) run.stage = StageKind::zero3, run.as = "deepspeed-3";
  return run;
}

void Reading::walk(const JsonValue& object, const std::string& path, const std::string& block) {
  std::vector<std::string> blocks;  // after the keys: a type says which parameters there are
  for (const JsonValue& member : object.items) {
    const std::string written =
        str(path, path.empty() ? "" : ".", member.key.empty() ? "\"\"" : member.key);
    // DeepSpeed knows two names of a key: "stage3_…" without its beginning too.
    const ConfigKey* row = find_key(keys, block, "stage3_" + member.key);
    if (!row) row = find_key(keys, block, written == "bfloat16" ? "bf16" : member.key);
    if (!row) unknown(member, written, block);
    if (!row || member.kind == Json::null) continue;
    const std::string name = row->path();
    const auto [at, is_new] = seen.emplace(name, Seen{&member, written});
    if (!is_new)
      add_at(member, error, written,
             str("is the same key as ", at->second.path, "; leave one of the two out"));
    else if (member.is_auto())
      loaded.automatic[name] = member.where;
    else if (row->member.store)
      store(name, *row, at->second);
    if (is_new && row->effect.use == ConfigUse::block && value(name)) blocks.push_back(name);
  }
  const std::string type = block + ".type";
  const bool has_parameters = block == "scheduler" ? value(type) != nullptr : !is_wrong(type);
  for (const std::string& name : blocks)
    if (has_parameters || !name.ends_with(".params")) walk(*value(name), seen.at(name).path, name);
}

void Reading::store(const std::string& name, const ConfigKey& key, Seen& given) {
  const JsonValue& value = *given.value;
  const std::string before = key.value();
  std::string expected = key.member.store(value);
  // pydantic reads "false" too; in other blocks any text is true to Python.
  if (!expected.empty() && value.text == "false" && !std::ranges::count(kLoose, key.block) &&
      !key.block.ends_with("params"))
    expected = key.member.store({.kind = Json::boolean, .text = "false"});
  given.is_default = key.member.show && key.value() == before;
  if (!expected.empty()) {
    const std::string nearest = nearest_name(value.text, key.member.names);
    return add(error, name, "expected ", expected, ", not ", describe(value),
               nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?"));
  }
  const bool same = given.path == name || !is_in_file(value);
  loaded.origins[name] = value.where + (same ? "" : ": " + given.path);
}

void Reading::unknown(const JsonValue& member, const std::string& path, const std::string& block) {
  std::vector<std::string> names, homes;
  for (const ConfigKey& key : keys) {
    if (key.block == block) names.push_back(key.key);
    if (key.key == member.key)
      homes.push_back(key.block.empty() ? "at the top level" : str("in \"", key.block, "\""));
  }
  const bool ignored = std::ranges::count(kLoose, block) > 0;
  const std::string nearest = nearest_name(member.key, names);
  std::string text = "unknown key";
  if (!nearest.empty())
    text += str("; did you mean \"", nearest, "\"?");
  else if (!homes.empty() && homes.size() <= 2)  // a name in many blocks says nothing
    text += "; it belongs " + homes[0] + (homes.size() > 1 ? " or " + homes[1] : "");
  if (block != "zerolab") text += ignored ? " (DeepSpeed ignores it)" : " (DeepSpeed refuses it)";
  add_at(member, ignored && is_in_file(member) ? warning : error, path, text);
}

void Reading::judge_unused() {
  Config run = as_run();
  for (const ConfigKey& key : config_keys(run)) {
    const auto& [use, reason, always, any_value] = key.effect;
    const std::string name = key.path();
    if (!value(name) || use == honoured || use == block) continue;
    const JsonValue& given = *value(name);
    const bool as_always = key.member.show ? seen.at(name).is_default : is_as_always(always, given);
    if (use == dead)
      add(as_always || is_off(given) ? warning : error, name,
          "DeepSpeed 0.19.8 refuses a file with this key; leave it out: ", reason);
    else if (use == refused && (key.member.store || !as_always))
      add(error, name, key.member.store ? "" : "cannot be honoured: ", reason);
    else if (use == noted && (any_value || !as_always))
      add(note, name, "has no effect: ", reason);
  }
}

}  // namespace zl
