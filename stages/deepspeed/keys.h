// The table of keys: each key of DeepSpeed 0.19.8 and of the "zerolab" block with the values that
// it takes, the member of a Config that it sets and DeepSpeed's default, or the reason why it has
// no effect.
//
// Reading, checking, `config explain` and the tables in tutorials/reference/configuration.md all
// use these rows, so they cannot disagree.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/json_text.h"

namespace zl {

// A member of one Config, which must outlive this.
struct ConfigMember {
  // Sets it to a value, given as JSON, and returns ""; else returns which values fit: "a whole
  // number of at least 1". null fits none.
  std::function<std::string(const std::string&)> store;
  std::function<std::string()> show;  // its JSON. Empty: it only changes another key's default
};

// Why a key has no effect: in the run of one Config, or ever.
struct Unused {
  // "": it has an effect. Else a sentence without its subject, the key.
  std::string reason = "";
  // An error: the key would change results or contradicts another, or DeepSpeed 0.19.8 itself
  // refuses it. Else a note.
  bool refused = false;
};

// A row. What a key sets is said in tutorials/reference/configuration.md, in the last column.
struct ConfigKey {
  std::string key;  // "lr"
  // None of a key that never has an effect. That of a block checks that the value is an object.
  ConfigMember member = {};
  std::string deepspeed = "";  // DeepSpeed's default as JSON; "": none
  Unused unused = {};          // as the Config is now
  std::string block = "";      // "optimizer.params"; "": the top level
  // Of a key without a member: the value that says what zerolab always does, which needs no
  // finding; "": false, or the key is absent.
  std::string always = "";

  std::string path() const { return path_of(block, key); }                // "optimizer.params.lr"
  std::string value() const { return member.show ? member.show() : ""; }  // JSON; "": none
};

void add_keys_without_effect(std::vector<ConfigKey>& all);  // of any run
// All keys in the order of the documentation, then the blocks, which are keys of the object around
// them: a name that is close to a block's is found as any other. Members are those of `config`,
// which must outlive the rows.
std::vector<ConfigKey> config_keys(Config& config);
// Null: unknown.
const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key);

// The closest of `names`, at most two edits away, or else the first that begins with `name`; "" if
// there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace zl
