// From a file and the --sets of the command line to one JSON object that knows where each value
// comes from.

#include "stages/deepspeed/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

void mark_set(JsonValue& value, int set) {
  value.set = set;
  for (JsonValue& item : value.items) mark_set(item, set);
  for (JsonMember& member : value.members) mark_set(member.value, set);
}

// JSON if it is, else a string: --set optimizer.type=AdamW needs no quotes. What begins with a
// bracket was meant as JSON: then throws InputError with the sentence about it.
JsonValue value_of_set(const std::string& text, const std::string& key) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool bracket = begin != std::string::npos && (text[begin] == '[' || text[begin] == '{');
  const std::string name = "--set " + key;
  try {
    JsonDocument document = parse_json(text, name);
    if (document.duplicates.empty()) return std::move(document.root);
    require_input(!bracket, "the key ", in_quotes(document.duplicates[0].path),
                  " stands twice in the value");
  } catch (const InputError& e) {
    std::string sentence = e.what();
    if (const std::string place = name + ":1: "; sentence.starts_with(place))
      sentence.erase(0, place.size());
    if (bracket) throw InputError(str("the value begins like JSON and is none: ", sentence));
  }
  JsonValue string;
  string.kind = JsonValue::Kind::string;
  string.text = text;
  return string;
}

class SetApplier {
 public:
  explicit SetApplier(ConfigText& text) : text_(text) {}

  void apply(const std::string& assignment, const std::string& file) {
    const size_t equals = assignment.find('=');
    const std::string key = assignment.substr(0, equals);
    index_ = int(text_.set_keys.size());
    text_.set_keys.push_back(key);
    if (equals == std::string::npos || key.empty() || key.front() == '.' || key.back() == '.' ||
        key.find("..") != std::string::npos) {
      return refuse("expected KEY=VALUE with a key such as zero_optimization.stage, not " +
                    in_quotes(assignment));
    }
    try {
      JsonValue value = value_of_set(assignment.substr(equals + 1), key);
      mark_set(value, index_);
      put(key, std::move(value), file);
    } catch (const InputError& e) {
      refuse(e.what());
    }
  }

 private:
  void refuse(const std::string& sentence) {
    text_.findings.push_back(
        {ConfigFinding::Severity::error, "--set " + shown_key(set_key()), sentence, ""});
  }
  const std::string& set_key() const { return text_.set_keys[size_t(index_)]; }

  // Replaces or adds the value at `key`, making the objects on the way.
  void put(const std::string& key, JsonValue value, const std::string& file) {
    JsonValue* object = &text_.document.root;
    int levels = 0;
    for (size_t begin = 0;; ++levels) {
      const size_t dot = key.find('.', begin);
      JsonValue& member =
          member_of(*object, key.substr(begin, dot == std::string::npos ? dot : dot - begin));
      if (dot == std::string::npos) {
        member = std::move(value);
        return;
      }
      if (levels == kJsonDepth) return refuse(str("the key has more than ", kJsonDepth, " levels"));
      const bool replaceable = member.kind == JsonValue::Kind::null ||
                               member.kind == JsonValue::Kind::boolean ||
                               (member.kind == JsonValue::Kind::string && member.text == "auto");
      if (member.kind != JsonValue::Kind::object && !replaceable) {
        return refuse(str(shown_key(key.substr(0, dot)), " is ", describe(member),
                          member.set < 0 ? str(" in ", file, ":", member.line) : "",
                          ", not an object"));
      }
      if (replaceable) become_object(member, key.substr(0, dot));
      object = &member;
      begin = dot + 1;
    }
  }

  JsonValue& member_of(JsonValue& object, const std::string& key) {
    for (JsonMember& member : object.members) {
      if (member.key == key) return member.value;
    }
    JsonMember made{key, {}};
    made.value.set = index_;
    object.members.push_back(std::move(made));
    return object.members.back().value;
  }

  // "zero_optimization": true is stage 1, and stays so below what --set adds.
  void become_object(JsonValue& value, const std::string& path) {
    const JsonValue old = value;
    value.kind = JsonValue::Kind::object;
    if (path != "zero_optimization" || old.kind != JsonValue::Kind::boolean) return;
    JsonValue stage = old;
    stage.kind = JsonValue::Kind::number;
    stage.number = old.boolean ? 1 : 0;
    stage.text = old.boolean ? "1" : "0";
    value.members.push_back({"stage", stage});
  }

  ConfigText& text_;
  int index_ = 0;
};

}  // namespace

ConfigText read_config_text(const ConfigSource& source) {
  ConfigText text;
  text.document.root.kind = JsonValue::Kind::object;
  text.document.root.line = 1;
  if (!source.file.empty()) {
    text.document = parse_json(read_config_file(source.file), source.file);
    const JsonValue& root = text.document.root;
    require_input(root.kind == JsonValue::Kind::object, source.file, ":", root.line,
                  ": a configuration is one JSON object { … }, not ", describe(root));
  }
  SetApplier applier(text);
  for (const std::string& assignment : source.sets) applier.apply(assignment, source.file);
  return text;
}

}  // namespace zl
