#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tensor/error.h"
#include "tensor/io/small_file.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;
using enum ConfigUse;
using Otherwise = ConfigCondition::Otherwise;

constexpr SmallFile kFile{"configuration", 256 << 10};  // real files have a few KiB

std::string joined(const std::string& block, const std::string& key) {
  return block.empty() ? key : block + "." + key;
}

// The name of a key that has two: DeepSpeed knows "stage3_…" without its beginning too.
std::string first_name(const std::string& block, const std::string& key) {
  if (block.empty() && key == "bfloat16") return "bf16";
  return find_config_key(block, "stage3_" + key) ? "stage3_" + key : key;
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
JsonValue value_of_set(const std::string& text, int set) {
  try {
    return parse_json(text, "the value", set);
  } catch (const InputError& e) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin != text.npos && (text[begin] == '[' || text[begin] == '{')) throw;
  }
  return {.kind = Json::string, .text = text, .set = set};
}

}  // namespace

void Reading::read_text() {
  if (!source.file.empty()) root_ = parse_json(read_small_file(source.file, kFile), source.file);
  require_input(root_.kind == Json::object, source.file, ":", root_.line,
                ": a configuration is one JSON object { … }, not ", describe(root_));
  int set = 0;
  for (const std::string& assignment : source.sets) try {
      apply_set(assignment, set++);
    } catch (const InputError& e) {
      add_at({.set = set - 1}, Severity::error, "", e.what());
    }
  for (const auto& [flag, key, text, is_string] : source.flags) {
    const JsonValue& before = value_at(key, set);
    const std::string was = before.text.empty() ? describe(before) : before.text;
    if (!before.is_absent() && was != text)
      add_at(before, Severity::note, key, str(flag, " ", text, " replaces ", was), true);
    put(key, is_string ? JsonValue{.kind = Json::string, .text = text, .set = set}
                       : parse_json(text, flag, set));
    ++set;
  }
}

// The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
// Throws InputError.
JsonValue& Reading::value_at(const std::string& key, int set) {
  require_input(std::ranges::count(key, '.') < kJsonDepth, "the key has more than ", kJsonDepth,
                " levels");
  JsonValue* value = &root_;
  for (size_t begin = 0, end = 0; end != key.npos; begin = end + 1) {
    if (value->is_absent()) value->kind = Json::object;
    require_input(value->kind == Json::object, in_quotes(key.substr(0, begin - 1)), " is ",
                  describe(*value), " in ", where(*value), ", not an object");
    end = key.find('.', begin);
    const std::string name = key.substr(begin, end - begin);
    auto member = std::ranges::find(value->items, name, &JsonValue::key);
    if (member == value->items.end())
      member = value->items.insert(member, JsonValue{.key = name, .set = set});
    value = &*member;
  }
  return *value;
}

void Reading::put(const std::string& key, JsonValue value) {
  JsonValue& to = value_at(key, value.set);
  value.key = to.key;
  to = std::move(value);
}

// Applies "a.b=value". Throws InputError.
void Reading::apply_set(const std::string& assignment, int set) {
  const size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  require_input(equals != key.npos && ("." + key + ".").find("..") == key.npos,
                "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                in_quotes(assignment));
  put(key, value_of_set(assignment.substr(equals + 1), set));
}

void Reading::add_at(const JsonValue& at, Severity severity, const std::string& key,
                     const std::string& text, bool of_flag) {
  const int line = at.set >= 0 ? std::numeric_limits<int>::max() : at.line;
  loaded.findings.push_back({severity, where(at), text, shown_key(key), of_flag, line});
}

std::string Reading::where(const JsonValue& value) const {
  if (value.set < 0) return str(source.file, ":", value.line);
  const size_t i = size_t(value.set), sets = source.sets.size();
  if (i >= sets) return source.flags[i - sets].flag;
  return "--set " + shown_key(source.sets[i].substr(0, source.sets[i].find('=')));
}

const JsonValue* Reading::value(const std::string& name) const {
  const auto seen = seen_.find(name);
  const bool usable =
      seen != seen_.end() && !seen->second.value->is_absent() && seen->second.wrong.empty();
  return usable ? seen->second.value : nullptr;
}

void Reading::add(Severity severity, const std::string& name, const std::string& text) {
  if (has(name)) return add_at(*seen_.at(name).value, severity, seen_.at(name).path, text);
  const JsonValue* place = &root_;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
    if (has(name.substr(0, dot))) place = seen_.at(name.substr(0, dot)).value;
  add_at(*place, severity, name, text);
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
      const std::string written = joined(path, member.key.empty() ? "\"\"" : member.key),
                        key = first_name(block, member.key), name = joined(block, key);
      const ConfigKey* row = find_config_key(block, key);
      const bool is_known = (row || is_config_block(name)) && member.key.find('.') == key.npos;
      if (!is_known) unknown(member, written, block);
      if (!is_known || member.kind == Json::null) continue;
      const auto [seen, is_new] = seen_.emplace(name, Seen{row, &member, written});
      if (!is_new)
        add_at(member, Severity::error, written,
               str("is the same key as ", seen->second.path, "; leave one of the two out"));
      else if (member.is_auto())
        loaded.automatic[name] = where(member);
      else if (row)
        read(name, seen->second);
      else if (member.kind != Json::object)
        error(name, seen->second.wrong = "expected an object, not " + describe(member));
      else if (key != "params" || !(has_no_type || is_wrong(block + ".type")))
        walk(member, written, name);
    }
}

void Reading::read(const std::string& name, Seen& seen) {
  const auto& [key, value, path, wrong] = seen;
  if (key->use == honoured) {
    Config changed = config;
    const ConfigFit fit = store(*key, *value, changed);
    if (!fit.fits) return error(name, seen.wrong = misfit(fit, *value));
    config = std::move(changed);
    loaded.origins[name] = where(*value) + (path == name || value->set >= 0 ? "" : ": " + path);
  } else if (key->use == dead) {
    add(is_off(*value) || is_as_always(*key, *value) ? Severity::warning : Severity::error, name,
        str("DeepSpeed 0.19.8 refuses a file with this key; leave it out: ", key->text));
  } else if (!is_as_always(*key, *value)) {
    const bool is_refused = key->use == refused;
    add(is_refused ? Severity::error : Severity::note, name,
        str(is_refused ? "cannot be honoured: " : "has no effect: ", key->text));
  }
}

void Reading::unknown(const JsonValue& member, const std::string& path, const std::string& block) {
  static const auto all = [] {
    std::set<std::pair<std::string_view, std::string_view>> names;  // with their blocks
    for (const auto& key : config_keys()) {
      const std::string_view in = key.block;
      const size_t dot = in.rfind('.') + 1;
      names.emplace(in, key.key);
      if (!in.empty()) names.emplace(in.substr(0, std::max<size_t>(dot, 1) - 1), in.substr(dot));
    }
    return names;
  }();
  std::vector<std::string> names, homes;
  for (const auto& [home, name] : all) {
    if (home == block) names.emplace_back(name);
    if (name == member.key)
      homes.push_back(home.empty() ? "at the top level" : str("in \"", home, "\""));
  }
  const bool refused = is_typed_block(block) || block.ends_with(".params") || block == "zerolab";
  const std::string nearest = nearest_name(member.key, names);
  std::string text = "unknown key";
  if (!nearest.empty())
    text += str("; did you mean \"", nearest, "\"?");
  else if (!homes.empty() && homes.size() <= 2)  // a name in many blocks says nothing
    text += "; it belongs " + homes[0] + (homes.size() > 1 ? " or " + homes[1] : "");
  if (block != "zerolab") text += refused ? " (DeepSpeed refuses it)" : " (DeepSpeed ignores it)";
  add_at(member, refused ? Severity::error : Severity::warning, path, text);
}

void Reading::judge_unused(const Config& defaults) {
  const Config run = as_run();
  for (const auto& [name, seen] : seen_) {
    const ConfigCondition* when = seen.key ? seen.key->when : nullptr;
    if (!when || !value(name) || when->holds(run)) continue;
    const auto show = seen.key->member.show;
    if (when->otherwise == Otherwise::error)
      error(name, std::string(when->reason));
    else if (when->otherwise == Otherwise::note || show(config) != show(defaults))
      note(name, str("has no effect: ", when->reason));
  }
}

}  // namespace zl
