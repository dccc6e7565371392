#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tensor/error.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;
using enum ConfigUse;
using Otherwise = ConfigCondition::Otherwise;

constexpr size_t kMostRemarks = 50;  // notes and warnings that are reported one by one

// A key as a finding shows it: a long one is cut.
std::string shown_key(const std::string& key) {
  return key.size() <= 100 ? key : in_quotes(key, 60);
}

bool is_absent(const JsonValue& value) { return value.is_null() || value.is_auto(); }

// Whether a value switches its feature off: false, null, "auto", {}, or "enabled" is one of them.
bool is_off(const JsonValue& value) {
  if (value.kind != Json::object)
    return is_absent(value) || (value.kind == Json::boolean && !value.boolean);
  const JsonValue* enabled = value.find("enabled");
  return enabled == nullptr ? value.members.empty() : is_off(*enabled);
}

std::string in_block(std::string_view block) {
  return block.empty() ? "at the top level" : str("in \"", block, "\"");
}

// Whether the block's "type" is one whose parameters are known. The optimizer's default is AdamW.
bool has_known_type(const JsonValue& object, const std::string& block) {
  const JsonValue* type = object.find("type");
  if (type == nullptr || is_absent(*type)) return block == "optimizer";
  return misfit(*find_config_key(block, "type"), *type).empty();
}

}  // namespace

void Findings::add(Severity severity, const JsonValue& at, const std::string& key,
                   const std::string& text, bool of_flag) {
  const int line = at.set >= 0 ? std::numeric_limits<int>::max() : at.line;
  entries_.push_back(
      {line, {severity, where(at), text, key.empty() ? "" : shown_key(key), of_flag}});
}

std::string Findings::where(const JsonValue& value) const {
  if (value.set < 0) return str(source_.file, ":", value.line);
  const size_t i = size_t(value.set), sets = source_.sets.size();
  if (i >= sets) return source_.flags[i - sets].flag;
  const std::string& set = source_.sets[i];
  return "--set " + shown_key(set.substr(0, set.find('=')));
}

std::vector<ConfigFinding> Findings::take() {
  std::ranges::stable_sort(entries_, {}, &Entry::line);
  std::set<std::pair<std::string, std::string>> wrong;  // an error needs no note beside it
  for (const auto& [line, f] : entries_)
    if (f.severity == Severity::error) wrong.emplace(f.where, f.key);
  std::vector<ConfigFinding> all;
  size_t remarks = 0;
  const Entry* first_left_out = nullptr;
  for (const Entry& entry : entries_) {
    const ConfigFinding& f = entry.finding;
    if (f.severity == Severity::note && wrong.contains({f.where, f.key})) continue;
    if (entry.finding.severity == Severity::error || ++remarks <= kMostRemarks)
      all.push_back(entry.finding);
    else if (first_left_out == nullptr)
      first_left_out = &entry;
  }
  if (first_left_out != nullptr)
    all.push_back({Severity::warning, first_left_out->finding.where,
                   str(remarks - kMostRemarks, " more notes and warnings are left out"), ""});
  return all;
}

const JsonValue* Reading::value(const std::string& name) const {
  const auto seen = seen_.find(name);
  const bool usable =
      seen != seen_.end() && !is_absent(*seen->second.written) && seen->second.wrong.empty();
  return usable ? &seen->second.value : nullptr;
}

bool Reading::is_on(const std::string& name, bool otherwise) const {
  const JsonValue* on = value(name);
  return on ? on->boolean : otherwise;
}

void Reading::add(Severity severity, const std::string& name, const std::string& text) {
  if (has(name)) return findings_.add(severity, *at(name).written, at(name).path, text);
  const JsonValue* place = &root_;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
    if (value(name.substr(0, dot))) place = at(name.substr(0, dot)).written;
  findings_.add(severity, *place, name, text);
}

Config Reading::as_run() const {
  Config run = config;
  run.stage = source.stage.value_or(config.stage);
  run.precision = source.precision.value_or(config.precision);
  if (source.several_stages) run.stage = StageKind::zero3, run.as = "deepspeed-3";
  return run;
}

void Reading::walk(const JsonValue& object, const std::string& path, const std::string& block) {
  for (const JsonMember& member : object.members) {
    const std::string key = member.key.empty() ? "\"\"" : member.key,
                      full = path.empty() ? key : path + "." + key;
    const ConfigKey* row = find_config_key(block, member.key);
    if (row == nullptr)
      unknown(member, full, block);
    else
      read(*row, member.value, full, object);
  }
}

void Reading::read(const ConfigKey& key, const JsonValue& value, const std::string& path,
                   const JsonValue& in) {
  const auto tell = [&](bool error, Severity otherwise, const std::string& text) {
    findings_.add(error ? Severity::error : otherwise, value, path, text);
  };
  if (key.effect.use == dead)
    return tell(!is_off(value) && !equals(value, key.deepspeed), Severity::warning,
                str("DeepSpeed 0.19.8 refuses a file with this key; leave it out: ", key.text));
  const bool is_object = key.type.kind == ConfigType::Kind::object;
  const JsonValue* first = key.is_second_name() ? in.find(key.first_name) : nullptr;
  if (first && !is_absent(*first)) {
    if (is_object)
      tell(false, Severity::warning,
           str("has no effect beside \"", key.first_name, "\", its newer name; leave it out"));
    else if (!is_absent(value))
      tell(true, Severity::error,
           str("is the same key as ", key.first_name, ", which is ", describe(*first),
               "; leave one of the two out"));
    return;
  }
  if (value.is_null() && key.deepspeed != "null" && key.type.kind != ConfigType::Kind::any)
    tell(false, Severity::note, "is null: taken as absent");
  const std::string name = key.name(), where = findings_.where(value);
  if (value.is_auto()) loaded.automatic[name] = where;
  Seen seen{&key, &value, as_declared(key, value), path};
  if (is_absent(value)) return void(seen_.emplace(name, seen));
  seen.wrong = misfit(key, seen.value);
  seen.late = !seen.wrong.empty() && key.when && key.when->otherwise == Otherwise::note_range &&
              is_of_kind(key, seen.value);
  seen_[name] = seen;
  if (!seen.wrong.empty()) {
    if (!seen.late)
      tell(is_typed_block(key.block) || key.effect.use != noted, Severity::warning, seen.wrong);
  } else if (key.effect.use == honoured) {
    loaded.origins[name] = where + (key.is_second_name() ? ": " + path : "");
    if (key.effect.store) key.effect.store(seen.value, config);
    if (is_object && (key.key != "params" || has_known_type(in, std::string(key.block))))
      walk(value, path, name);
  } else if (!equals(seen.value, key.effect.ours)) {
    if (key.effect.use == refused)
      return tell(true, Severity::error, str("cannot be honoured: ", key.text));
    if (!is_object || !is_off(value)) tell(false, Severity::note, str("has no effect: ", key.text));
  }
}

void Reading::unknown(const JsonMember& member, const std::string& path, const std::string& block) {
  const bool refused = refuses_unknown_keys(block);
  const std::string nearest = nearest_name(member.key, config_names_in(block));
  const auto blocks = config_blocks_of(member.key);
  std::string text = "unknown key";
  if (!nearest.empty())
    text += str("; did you mean \"", nearest, "\"?");
  else if (!blocks.empty() && blocks.size() <= 2)  // a name in many blocks says nothing
    text += str("; it belongs ", in_block(blocks[0]),
                blocks.size() > 1 ? " or " + in_block(blocks[1]) : "");
  if (block != "zerolab") text += refused ? " (DeepSpeed refuses it)" : " (DeepSpeed ignores it)";
  findings_.add(refused ? Severity::error : Severity::warning, member.value, path, text);
}

void Reading::judge_unused(const Config& defaults) {
  const Config run = as_run();
  for (const auto& [name, seen] : seen_) {
    const ConfigCondition* when = seen.key->when;
    if (when == nullptr || is_absent(*seen.written) || seen.wrong.empty() == seen.late) continue;
    const bool used = when->holds(run), error = when->otherwise == Otherwise::error;
    const auto is_other = [&, show = seen.key->effect.show] {
      return show(config) != show(defaults);
    };
    if (used && seen.late) add(Severity::error, name, seen.wrong);
    if (used || (when->otherwise == Otherwise::note_range && !seen.late)) continue;
    if (when->otherwise != Otherwise::note_other_values || is_other())
      add(error ? Severity::error : Severity::note, name,
          str(error ? "" : "has no effect: ", when->reason));
  }
}

}  // namespace zl
