// Reading a configuration key by key: each has a type and a range, each wrong one becomes a finding
// that names its line, and each key that nothing has read becomes a finding as well. So no key can
// be accepted and ignored.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/json_text.h"

namespace zl {

// What is found while a configuration is read, and where each value that was used comes from.
class ConfigFindings {
 public:
  using Severity = ConfigFinding::Severity;
  // `sets`: the keys of --set, by the index that JsonValue::set has.
  ConfigFindings(std::string file, std::vector<std::string> sets)
      : file_(std::move(file)), sets_(std::move(sets)) {}

  void add(Severity severity, const JsonValue& at, const std::string& key, std::string text);
  void add_at_line(Severity severity, int line, const std::string& key, std::string text);
  // "ds.json:7" or "--set zero_optimization.stage".
  std::string place(const JsonValue& value) const;
  void used(const std::string& key, const JsonValue& value) { origins_[key] = place(value); }
  void automatic(const std::string& key, const JsonValue& value) { automatic_[key] = place(value); }

  // All of them: those of the file by line, then the others. Keys are shortened.
  std::vector<ConfigFinding> take();
  const std::map<std::string, std::string>& origins() const { return origins_; }
  const std::map<std::string, std::string>& automatic() const {
    return automatic_;
  }  // keys that are "auto"

 private:
  struct Entry {
    int line;
    ConfigFinding finding;
  };
  std::string file_;
  std::vector<std::string> sets_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> origins_, automatic_;
};

// One object of a configuration. Types and ranges are those of the schema. Each reader gives
// nothing if the key is absent, null or "auto" (then the default holds), or if its value is wrong
// (then that was found).
class ConfigBlock {
 public:
  // `path`: of the object, "" for the outermost.
  ConfigBlock(ConfigFindings& findings, const JsonValue& object, std::string path = "")
      : ConfigBlock(findings, &object, object, std::move(path)) {}

  std::optional<int64_t> whole(const char* key);  // 5e8 is one
  std::optional<uint64_t> seed(const char* key);
  std::optional<double> number(const char* key);
  std::optional<bool> boolean(const char* key);
  std::optional<std::string> text(const char* key);  // choices of the top level in lower case
  std::optional<std::string> path(
      const char* key);  // a text without zero bytes, which no file name can hold
  std::optional<std::vector<std::string>> texts(
      const char* key);  // an array of strings, or one string
  std::optional<std::pair<double, double>> pair(const char* key);
  ConfigBlock block(const char* key);

  bool present() const { return object_ != nullptr; }
  bool from_file() const { return object_ != nullptr && object_->set < 0; }
  // The value if the key is there, unread or not, null or "auto" included.
  const JsonValue* peek(const char* key) const {
    return object_ == nullptr ? nullptr : object_->find(key);
  }
  // Whether the key has a value: not null, not "auto".
  bool given(const char* key) const;
  // Marks `key` as read and gives its value, if it is given.
  const JsonValue* take(const char* key);

  using Severity = ConfigFinding::Severity;
  // A finding about `key`; if that is absent, about the block.
  void add(Severity severity, const char* key, const std::string& text);
  // A finding for each key that was not read and does what its value does not say. `user`: what
  // does not use the key, such as "SGD", for keys that others use.
  void finish(const std::string& user = "");

 private:
  std::string full(const std::string& key) const;
  const JsonValue* fitting(const char* key);  // take(), if the type and the range are right
  // finish() about one key. Of a long block only the first notes and warnings are told one by one,
  // but every error.
  void tell(Severity severity, const JsonMember& member, const std::string& text);
  void unread(const JsonMember& member, const std::string& user);
  void known(const ConfigKey& key, const JsonMember& member, const std::string& user);
  void dead(const ConfigKey& key, const JsonMember& member);
  void unknown(const JsonMember& member);

  // `object` may be null: every key is absent. `place`: where findings about an absent key are said
  // to be.
  ConfigBlock(ConfigFindings& findings, const JsonValue* object, const JsonValue& place,
              std::string path)
      : findings_(findings), object_(object), place_(place), path_(std::move(path)) {}

  ConfigFindings& findings_;
  const JsonValue* object_;
  const JsonValue& place_;
  std::string path_;
  std::set<std::string> read_;
  size_t told_ = 0;  // notes and warnings of finish()
  std::vector<const JsonMember*> untold_;
  bool quiet_ = false;  // the block as a whole has no effect, which was said: only what is wrong in
                        // it remains to be said
};

// The file and every --set in it, as one object.
struct ConfigText {
  JsonDocument document;
  std::vector<std::string> set_keys;
  std::vector<ConfigFinding> findings;  // about --set itself
};
// Throws InputError as load_config does.
ConfigText read_config_text(const ConfigSource& source);
// The bytes of a file. What is no regular file must give something soon. Throws InputError, also
// beyond 256 KiB.
std::string read_config_file(const std::string& name);

// As people shall see it: "" in quotes, a long one cut.
std::string shown_key(const std::string& key);
// A warning for each null that zerolab takes as absent and DeepSpeed does not.
void find_nulls(const JsonValue& root, ConfigFindings& findings);

// Values and findings of the batch keys at the top level; `ranks` for DeepSpeed's triangle.
struct BatchSizes {
  int64_t micro_batch = 4, accumulation = 1;
  std::map<std::string, std::string>
      derived;  // "train_micro_batch_size_per_gpu" → "32 / 4 ranks / 1"
};
BatchSizes read_batch_sizes(ConfigBlock& top, int ranks, bool file_given);
void read_optimizer(ConfigBlock optimizer, OptimizerConfig& config);
void read_scheduler(ConfigBlock scheduler, const Config& run, ScheduleConfig& config);
// fp16, bf16, data_types, communication_data_type and what else decides the types of numbers.
void read_precision(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config);
// `source`: which stage will run, if not the file's.
void read_zero(ConfigBlock& top, const ConfigSource& source, Config& config);
// steps_per_print, wall_clock_breakdown, comms_logger, csv_monitor.
void read_reports(ConfigBlock& top, Config& config);

template <class T>
void assign(T& target, const std::optional<T>& value) {
  if (value) target = *value;
}

}  // namespace zl
