#include "stages/config_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "stages/config_keys.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr size_t kMostUnread = 50;  // keys of one block that are told one by one

// The whole number that a JSON number or a string of digits is, if it is one and an int64.
std::optional<int64_t> to_whole(const JsonValue& value, bool text_too) {
  const bool is_text = value.kind == JsonValue::Kind::string;
  if (is_text ? !text_too : value.kind != JsonValue::Kind::number) return std::nullopt;
  int64_t whole = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, whole);
  if (error == std::errc() && stop == end) return whole;
  constexpr double too_much = 9223372036854775808.0;  // 2^63
  if (is_text || value.number != std::floor(value.number) || std::abs(value.number) >= too_much) return std::nullopt;
  return int64_t(value.number);  // 5e8
}

std::string at_least(const char* what, double least) {
  return std::isinf(least) ? str(what) : str(what, " of at least ", least);
}

}  // namespace

void ConfigFindings::add(Severity severity, const JsonValue& at, const std::string& key, std::string text) {
  const int line = at.set >= 0 ? std::numeric_limits<int>::max() : at.line;
  entries_.push_back({line, {severity, place(at), std::move(text), key}});
}

void ConfigFindings::add_at_line(Severity severity, int line, const std::string& key, std::string text) {
  entries_.push_back({line, {severity, str(file_, ":", line), std::move(text), key}});
}

std::string ConfigFindings::place(const JsonValue& value) const {
  return value.set >= 0 ? "--set " + sets_[size_t(value.set)] : str(file_, ":", value.line);
}

std::vector<ConfigFinding> ConfigFindings::take() {
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
  std::vector<ConfigFinding> all;
  for (Entry& e : entries_) all.push_back(std::move(e.finding));
  entries_.clear();
  return all;
}

bool ConfigBlock::given(const char* key) const {
  const JsonValue* value = peek(key);
  if (value == nullptr || value->kind == JsonValue::Kind::null) return false;
  return value->kind != JsonValue::Kind::string || value->text != "auto";
}

const JsonValue* ConfigBlock::take(const char* key) {
  read_.insert(key);
  if (!given(key)) return nullptr;
  const JsonValue* value = peek(key);
  findings_.used(full(key), *value);
  return value;
}

void ConfigBlock::expected(const char* key, const std::string& what, const JsonValue& came) {
  findings_.add(Severity::error, came, full(key), str("expected ", what, ", not ", describe(came)));
}

std::optional<int64_t> ConfigBlock::whole(const char* key, const WholeRange& range) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto whole = to_whole(*value, range.text_too);
  if (whole && *whole >= range.least && *whole <= range.most) return whole;
  const bool open = range.most == std::numeric_limits<int64_t>::max();
  const std::string what = str("a whole number ", open ? "of at least " : "from ", range.least, open ? "" : str(" to ", range.most));
  std::string deepspeed = whole ? range.deepspeed : "";
  if (const size_t at = deepspeed.find("{}"); at != std::string::npos) deepspeed.replace(at, 2, std::to_string(*whole));
  findings_.add(Severity::error, *value, full(key), str("expected ", what, ", not ", describe(*value),
                deepspeed.empty() ? "" : " (DeepSpeed: " + deepspeed + ")"));
  return std::nullopt;
}

std::optional<uint64_t> ConfigBlock::seed(const char* key) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  uint64_t seed = 0;
  const char* end = value->text.data() + value->text.size();
  const auto [stop, error] = std::from_chars(value->text.data(), end, seed);
  if (value->kind == JsonValue::Kind::number && error == std::errc() && stop == end) return seed;
  if (const auto whole = to_whole(*value, false); whole && *whole >= 0) return uint64_t(*whole);
  expected(key, "a whole number from 0 to 2^64 - 1", *value);
  return std::nullopt;
}

std::optional<double> ConfigBlock::number(const char* key, double least) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::number && value->number >= least) return value->number;
  expected(key, at_least("a number", least), *value);
  return std::nullopt;
}

std::optional<bool> ConfigBlock::boolean(const char* key) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::boolean) return value->boolean;
  expected(key, "true or false", *value);
  return std::nullopt;
}

std::optional<std::string> ConfigBlock::text(const char* key) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::string && !value->text.empty()) return value->text;
  expected(key, "a string", *value);
  return std::nullopt;
}

std::optional<std::vector<std::string>> ConfigBlock::texts(const char* key) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::string) return std::vector<std::string>{value->text};
  bool right = value->kind == JsonValue::Kind::array;
  std::vector<std::string> all;
  for (const JsonValue& item : value->items) {
    right = right && item.kind == JsonValue::Kind::string;
    all.push_back(item.text);
  }
  if (right) return all;
  expected(key, "an array of strings", *value);
  return std::nullopt;
}

std::optional<std::pair<double, double>> ConfigBlock::pair(const char* key, double below) {
  const JsonValue* value = take(key);
  if (value == nullptr) return std::nullopt;
  bool right = value->kind == JsonValue::Kind::array && value->items.size() == 2;
  for (const JsonValue& item : value->items) {
    right = right && item.kind == JsonValue::Kind::number && item.number >= 0 && item.number < below;
  }
  if (right) return std::pair{value->items[0].number, value->items[1].number};
  const std::string shown = value->items.size() == 2 ? describe(value->items[0]) + " and " + describe(value->items[1])
                                                     : describe(*value);
  findings_.add(Severity::error, *value, full(key),
                str("expected an array of two numbers from 0 to below ", below, ", not ", shown));
  return std::nullopt;
}

ConfigBlock ConfigBlock::block(const char* key) {
  const JsonValue* value = take(key);
  if (value != nullptr && value->kind != JsonValue::Kind::object) {
    expected(key, "an object { … }", *value);
    value = nullptr;
  }
  return {findings_, value, value != nullptr ? *value : place_, full(key)};
}

void ConfigBlock::add(Severity severity, const char* key, const std::string& text) {
  const JsonValue* value = peek(key);
  findings_.add(severity, value != nullptr ? *value : place_, full(key), text);
}

void ConfigBlock::finish(const std::string& user) {
  if (object_ == nullptr) return;
  std::vector<const JsonMember*> rest;
  for (const JsonMember& member : object_->members) {
    if (read_.count(member.key) == 0) rest.push_back(&member);
  }
  for (size_t i = 0; i < rest.size() && i < kMostUnread; ++i) unread(*rest[i], user);
  if (rest.size() > kMostUnread) {
    const JsonMember& next = *rest[kMostUnread];
    findings_.add(Severity::warning, next.value, full(next.key),
                  str("not yet honoured, as ", rest.size() - kMostUnread - 1, " more keys of this block"));
  }
}

void ConfigBlock::unread(const JsonMember& member, const std::string& user) {
  if (const ConfigKey* known = find_config_key(path_, member.key)) {
    const JsonValue* enabled = member.value.find("enabled");
    if (enabled != nullptr && enabled->kind == JsonValue::Kind::boolean && !enabled->boolean) return;
    const bool elsewhere = known->note[0] == '\0';
    findings_.add(elsewhere ? Severity::warning : Severity::note, member.value, full(member.key),
                  elsewhere ? str("has no effect: ", user, " does not use it") : str("not yet honoured", known->note));
    return;
  }
  const bool ours = path_ == "zerolab";
  const std::string nearest = nearest_config_key(path_, member.key);
  std::string text = ours ? "unknown key" : "not yet honoured: unknown key";
  if (!nearest.empty()) text += str("; did you mean \"", nearest, "\"?");
  if (path_.empty()) text += " (DeepSpeed ignores it silently)";
  if (path_ == "zero_optimization") text += " (DeepSpeed: Extra inputs are not permitted)";
  findings_.add(ours ? Severity::error : Severity::warning, member.value, full(member.key), text);
}

}  // namespace zl
