#include "stages/deepspeed/reader.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "tensor/error.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;

constexpr size_t kMostRemarks = 50;  // notes and warnings that are reported one by one

// A key as a finding shows it: "" in quotes, a long one cut.
std::string shown_key(const std::string& key) {
  constexpr size_t longest = 100, kept = 60;
  if (key.empty()) return "\"\"";
  if (key.size() <= longest) return key;
  size_t end = kept;
  while (end > 0 && (uint8_t(key[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return key.substr(0, end) + "…";
}

// Whether a value switches its feature off: false, null, "auto", {}, or "enabled" is one of them.
bool is_off(const JsonValue& value) {
  if (value.kind != Json::object)
    return value.is_null() || value.is_auto() || (value.kind == Json::boolean && !value.boolean);
  const JsonValue* enabled = value.find("enabled");
  return enabled == nullptr ? value.members.empty() : is_off(*enabled);
}

std::string in_block(std::string_view block) {
  return block.empty() ? "at the top level" : str("in \"", block, "\"");
}

}  // namespace

void Findings::add(Severity severity, const JsonValue& at, const std::string& key,
                   const std::string& text) {
  const int line = at.set >= 0 ? std::numeric_limits<int>::max() : at.line;
  entries_.push_back({line, {severity, where(at), text, key.empty() ? "" : shown_key(key)}});
}

std::string Findings::where(const JsonValue& value) const {
  if (value.set < 0) return str(source_.file, ":", value.line);
  const size_t i = size_t(value.set), sets = source_.sets.size();
  if (i >= sets) return source_.flags[i - sets].flag;
  const std::string& set = source_.sets[i];
  return "--set " + shown_key(set.substr(0, set.find('=')));
}

std::vector<ConfigFinding> Findings::take() {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.line < b.line; });
  std::vector<ConfigFinding> all;
  size_t remarks = 0;
  const Entry* first_left_out = nullptr;
  for (const Entry& entry : entries_) {
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

std::string ConfigBlock::full(const std::string& key) const {
  const std::string name = key.empty() ? "\"\"" : key;
  return path_.empty() ? name : path_ + "." + name;
}

bool ConfigBlock::given(const char* key) const {
  const JsonValue* value = peek(key);
  return value != nullptr && !value->is_null() && !value->is_auto();
}

bool ConfigBlock::is_absent(const ConfigKey& key, const JsonValue& value) {
  if (value.is_null() && key.deepspeed != "null" && key.type.kind != ConfigType::Kind::any)
    findings_.add(Severity::note, value, full(std::string(key.key)), "is null: taken as absent");
  return value.is_null() || value.is_auto();
}

const JsonValue* ConfigBlock::take(const char* key) {
  const ConfigKey* row = find_config_key(path_, key);
  if (row == nullptr) throw std::logic_error("the schema has no key " + full(key));
  const JsonValue* value = peek(key);
  const bool first = read_.insert(key).second;
  if (value == nullptr) return nullptr;
  if (first && is_absent(*row, *value) && value->is_auto())
    findings_.automatic[full(key)] = findings_.where(*value);
  if (!given(key)) return nullptr;
  findings_.origins[full(key)] = findings_.where(*value);
  return value;
}

const JsonValue* ConfigBlock::fitting(const char* key) {
  const JsonValue* value = take(key);
  if (value == nullptr) return nullptr;
  const std::string wrong = misfit(*find_config_key(path_, key), *value);
  if (wrong.empty()) return value;
  error(key, wrong);
  return nullptr;
}

void ConfigBlock::store(const JsonValue& value, Recompute& target) const {
  if (value.kind == Json::boolean) target = value.boolean ? Recompute::full : Recompute::none;
  for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
    if (value.text == name(r)) target = r;
}

void ConfigBlock::store(const JsonValue& value, std::vector<std::string>& target) const {
  target.clear();
  if (value.kind == Json::string) target.push_back(value.text);
  for (const JsonValue& item : value.items) target.push_back(item.text);
}

void ConfigBlock::store(const JsonValue& value, std::vector<double>& target) const {
  target.clear();
  for (const JsonValue& item : value.items) target.push_back(item.number);
}

ConfigBlock ConfigBlock::block(const char* key) {
  const JsonValue* value = fitting(key);
  return {findings_, value, value != nullptr ? *value : at_, full(key)};
}

void ConfigBlock::add(Severity severity, const char* key, const std::string& text) {
  const JsonValue* value = peek(key);
  findings_.add(severity, value != nullptr ? *value : at_, full(key), text);
}

void ConfigBlock::finish(const std::string& user) {
  if (object_ == nullptr) return;
  for (const JsonMember& member : object_->members) {
    const ConfigKey* key = find_config_key(path_, member.key);
    if (key == nullptr)
      unknown(member);
    else if (read_.count(member.key) == 0)
      unread(*key, member.value, user);
  }
}

void ConfigBlock::unread(const ConfigKey& key, const JsonValue& value, const std::string& user) {
  const std::string path = full(std::string(key.key));
  const bool strict = refuses_unknown_keys(path_), refused = key.use == ConfigUse::refused;
  const auto tell = [&](bool error, Severity otherwise, const std::string& text) {
    findings_.add(error ? Severity::error : otherwise, value, path, text);
  };
  if (key.use == ConfigUse::dead)
    return tell(!is_off(value) && !equals(key, value, key.deepspeed), Severity::warning,
                str("DeepSpeed 0.19.8 refuses a file with this key; leave it out: ", key.text));
  if (is_absent(key, value)) return;
  const bool honoured = key.use == ConfigUse::honoured;
  if (const std::string wrong = misfit(key, value); !wrong.empty())
    return tell(is_typed_block(path_) || honoured || refused, Severity::warning, wrong);
  if (honoured)
    return tell(strict, Severity::warning, str("has no effect: ", user, " does not use it"));
  if (equals(key, value, key.ours)) return;
  if (refused) return tell(true, Severity::error, str("cannot be honoured: ", key.text));
  if (value.kind == Json::object && is_off(value)) return;
  tell(false, Severity::note,
       str(key.use == ConfigUse::later ? "has no effect yet: " : "has no effect: ", key.text));
}

void ConfigBlock::unknown(const JsonMember& member) {
  const bool refused = refuses_unknown_keys(path_);
  const std::string nearest = nearest_config_key(path_, member.key);
  const auto blocks = config_blocks_of(member.key);
  std::string text = "unknown key";
  if (!nearest.empty())
    text += str("; did you mean \"", nearest, "\"?");
  else if (!blocks.empty() && blocks.size() <= 2)  // a name in many blocks says nothing
    text += str("; it belongs ", in_block(blocks[0]),
                blocks.size() > 1 ? " or " + in_block(blocks[1]) : "");
  if (path_ != "zerolab") text += refused ? " (DeepSpeed refuses it)" : " (DeepSpeed ignores it)";
  findings_.add(refused ? Severity::error : Severity::warning, member.value, full(member.key),
                text);
}

}  // namespace zl
