#include "stages/deepspeed/config_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

#include "stages/deepspeed/config_type.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr size_t kMostTold = 50;  // notes and warnings of one block that are told one by one

bool is_automatic(const JsonValue& value) {
  return value.kind == JsonValue::Kind::string && value.text == "auto";
}

std::string place_of(const std::string& block) {
  return block.empty() ? "at the top level" : "in \"" + block + "\"";
}

// pydantic takes true as 1; nobody means that.
bool is_boolean_number(const ConfigKey& key, const JsonValue& value) {
  const bool number =
      key.type.kind == ConfigType::Kind::whole || key.type.kind == ConfigType::Kind::number;
  return number && value.kind == JsonValue::Kind::boolean;
}

std::string counts_as(const JsonValue& value) {
  return str(describe(value), " counts as ", value.boolean ? 1 : 0,
             ", as in DeepSpeed; write the number");
}

// Whether a feature that DeepSpeed has no more is switched off where it is named.
bool is_off(const ConfigKey& key, const JsonValue& value) {
  if (value.kind == JsonValue::Kind::null || is_automatic(value) ||
      is_value(key, value, key.deepspeed))
    return true;
  if (value.kind == JsonValue::Kind::boolean) return !value.boolean;
  if (value.kind != JsonValue::Kind::object) return false;
  const JsonValue* enabled = value.find("enabled");
  return value.members.empty() ||
         (enabled != nullptr && (is_automatic(*enabled) ||
                                 (enabled->kind == JsonValue::Kind::boolean && !enabled->boolean)));
}

}  // namespace

std::string shown_key(const std::string& key) {
  constexpr size_t longest = 100, kept = 60;
  if (key.empty()) return "\"\"";
  if (key.size() <= longest) return key;
  size_t end = kept;
  while (end > 0 && (uint8_t(key[end]) & 0xc0) == 0x80) --end;  // no half character
  return key.substr(0, end) + "…";
}

void ConfigFindings::add(Severity severity, const JsonValue& at, const std::string& key,
                         std::string text) {
  const int line = at.set >= 0 ? std::numeric_limits<int>::max() : at.line;
  entries_.push_back({line, {severity, place(at), std::move(text), key}});
}

void ConfigFindings::add_at_line(Severity severity, int line, const std::string& key,
                                 std::string text) {
  entries_.push_back({line, {severity, str(file_, ":", line), std::move(text), key}});
}

std::string ConfigFindings::place(const JsonValue& value) const {
  return value.set >= 0 ? "--set " + shown_key(sets_[size_t(value.set)])
                        : str(file_, ":", value.line);
}

std::vector<ConfigFinding> ConfigFindings::take() {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.line < b.line; });
  std::vector<ConfigFinding> all;
  for (Entry& e : entries_) {
    if (!e.finding.key.empty()) e.finding.key = shown_key(e.finding.key);
    all.push_back(std::move(e.finding));
  }
  entries_.clear();
  return all;
}

std::string ConfigBlock::full(const std::string& key) const {
  const std::string name = key.empty() ? "\"\"" : key;
  return path_.empty() ? name : path_ + "." + name;
}

bool ConfigBlock::given(const char* key) const {
  const JsonValue* value = peek(key);
  if (value == nullptr || value->kind == JsonValue::Kind::null) return false;
  return value->kind != JsonValue::Kind::string || value->text != "auto";
}

const JsonValue* ConfigBlock::take(const char* key) {
  read_.insert(key);
  const JsonValue* value = peek(key);
  if (value != nullptr && is_automatic(*value)) findings_.automatic(full(key), *value);
  if (!given(key)) return nullptr;
  findings_.used(full(key), *value);
  return value;
}

const JsonValue* ConfigBlock::fitting(const char* key) {
  const ConfigKey* row = find_config_key(path_, key);
  if (row == nullptr) throw std::logic_error("the schema has no key " + full(key));
  const JsonValue* value = take(key);
  if (value == nullptr) {
    const JsonValue* written = peek(key);
    const bool null = written != nullptr && written->kind == JsonValue::Kind::null;
    if (null && config_block_rule(path_).checked && !row->type.nullable)
      add(Severity::error, key, misfit(*row, *written));
    return nullptr;
  }
  const std::string wrong = misfit(*row, *value);
  if (!wrong.empty()) {
    add(Severity::error, key, wrong);
    return nullptr;
  }
  if (is_boolean_number(*row, *value)) add(Severity::note, key, counts_as(*value));
  return value;
}

std::optional<int64_t> ConfigBlock::whole(const char* key) {
  const JsonValue* value = fitting(key);
  return value == nullptr ? std::nullopt : to_whole(*value, config_block_rule(path_).checked);
}

std::optional<uint64_t> ConfigBlock::seed(const char* key) {
  const JsonValue* value = fitting(key);
  if (value == nullptr) return std::nullopt;
  uint64_t seed = 0;
  const char* end = value->text.data() + value->text.size();
  const auto [stop, error] = std::from_chars(value->text.data(), end, seed);
  return error == std::errc() && stop == end ? seed : uint64_t(*to_whole(*value, false));
}

std::optional<double> ConfigBlock::number(const char* key) {
  const JsonValue* value = fitting(key);
  return value == nullptr ? std::nullopt : to_number(*value, config_block_rule(path_).checked);
}

std::optional<bool> ConfigBlock::boolean(const char* key) {
  const JsonValue* value = fitting(key);
  return value == nullptr ? std::nullopt : to_boolean(*value, config_block_rule(path_).checked);
}

std::optional<std::string> ConfigBlock::text(const char* key) {
  const JsonValue* value = fitting(key);
  if (value == nullptr) return std::nullopt;
  const bool choice = find_config_key(path_, key)->type.kind == ConfigType::Kind::choice;
  return choice && path_.empty() ? lower_case(value->text) : value->text;
}

std::optional<std::string> ConfigBlock::path(const char* key) {
  auto name = text(key);
  if (!name || name->find('\0') == std::string::npos) return name;
  add(Severity::error, key, "holds a zero byte (\\u0000), which no name of a file can");
  return std::nullopt;
}

std::optional<std::vector<std::string>> ConfigBlock::texts(const char* key) {
  const JsonValue* value = fitting(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::string) return std::vector<std::string>{value->text};
  std::vector<std::string> all;
  for (const JsonValue& item : value->items)
    if (item.kind == JsonValue::Kind::string) all.push_back(item.text);
  return all;
}

std::optional<std::pair<double, double>> ConfigBlock::pair(const char* key) {
  const JsonValue* value = fitting(key);
  if (value == nullptr) return std::nullopt;
  return std::pair{value->items[0].number, value->items[1].number};
}

ConfigBlock ConfigBlock::block(const char* key) {
  const JsonValue* value = fitting(key);
  return {findings_, value, value != nullptr ? *value : place_, full(key)};
}

void ConfigBlock::add(Severity severity, const char* key, const std::string& text) {
  const JsonValue* value = peek(key);
  findings_.add(severity, value != nullptr ? *value : place_, full(key), text);
}

void ConfigBlock::finish(const std::string& user) {
  if (object_ == nullptr) return;
  for (const JsonMember& member : object_->members) {
    if (read_.count(member.key) == 0) unread(member, user);
  }
  if (untold_.empty()) return;
  const JsonMember& first = *untold_[0];
  const size_t others = untold_.size() - 1;
  findings_.add(Severity::warning, first.value, full(first.key),
                others == 0 ? "has no effect"
                            : str("has no effect, as ", others, " more keys of this block"));
}

void ConfigBlock::tell(Severity severity, const JsonMember& member, const std::string& text) {
  if (severity == Severity::error || told_++ < kMostTold)
    return findings_.add(severity, member.value, full(member.key), text);
  if (untold_.empty() || untold_.back() != &member) untold_.push_back(&member);
}

void ConfigBlock::unread(const JsonMember& member, const std::string& user) {
  const ConfigKey* row = find_config_key(path_, member.key);
  if (row == nullptr) return unknown(member);
  if (row->use == ConfigUse::dead) return dead(*row, member);
  known(*row, member, user);
}

void ConfigBlock::known(const ConfigKey& key, const JsonMember& member, const std::string& user) {
  const ConfigBlockRule rule = config_block_rule(path_);
  const JsonValue& value = member.value;
  const bool null = value.kind == JsonValue::Kind::null;
  if (is_automatic(value) || (null && (!rule.checked || key.type.nullable))) return;
  if (const std::string wrong = misfit(key, value); !wrong.empty()) {
    const bool refused =
        key.use == ConfigUse::refused || key.use == ConfigUse::honoured || rule.checked;
    return tell(refused ? Severity::error : Severity::warning, member, wrong);
  }
  if (key.use == ConfigUse::honoured) {
    const bool refused = rule.unknown[0] != '\0';
    return tell(refused ? Severity::error : Severity::warning, member,
                str("has no effect: ", user, " does not use it",
                    refused ? str(" (DeepSpeed: ", rule.unknown, " '", member.key, "')") : ""));
  }
  bool off = quiet_ || is_value(key, value, key.ours);
  if (key.type.kind == ConfigType::Kind::object) {
    if (has_config_keys(full(member.key))) {
      ConfigBlock inner(findings_, value, full(member.key));
      inner.quiet_ = true;
      inner.finish();
    }
    const JsonValue* enabled = value.find("enabled");
    off = off ||
          (enabled != nullptr && (is_automatic(*enabled) || to_boolean(*enabled, true) == false));
  }
  if (key.use == ConfigUse::refused && !is_value(key, value, key.ours))
    return tell(Severity::error, member, str("cannot be honoured: ", key.text));
  if (is_boolean_number(key, value)) tell(Severity::note, member, counts_as(value));
  if (off) return;
  tell(Severity::note, member,
       str("has no effect", key.use == ConfigUse::later ? " yet: " : ": ", key.text));
}

// What DeepSpeed has no more: it refuses the file even where the value says "off".
void ConfigBlock::dead(const ConfigKey& key, const JsonMember& member) {
  const bool off = is_off(key, member.value);
  tell(off ? Severity::warning : Severity::error, member,
       str("is dead, DeepSpeed 0.19.8 refuses a file that has it; leave it out: ", key.text));
}

void ConfigBlock::unknown(const JsonMember& member) {
  const ConfigBlockRule rule = config_block_rule(path_);
  const bool ours = path_ == "zerolab", refused = ours || rule.unknown[0] != '\0';
  if (!refused && told_ >= kMostTold) return tell(Severity::warning, member, "");
  const std::string nearest = nearest_config_key(path_, member.key);
  const auto blocks = config_blocks_of(member.key);
  std::string text = "unknown key";
  if (!nearest.empty()) {
    text += str("; did you mean \"", nearest, "\"?");
  } else if (!blocks.empty() && blocks.size() <= 2) {  // a name that many blocks have says nothing
    text += str("; it belongs ", place_of(blocks.front()),
                blocks.size() > 1 ? " or " + place_of(blocks.back()) : "");
  }
  if (!ours)
    text += refused ? str(" (DeepSpeed: ", rule.unknown, ")") : " (DeepSpeed ignores it silently)";
  tell(refused ? Severity::error : Severity::warning, member, text);
}

}  // namespace zl
