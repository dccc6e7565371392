// Reads a configuration key by key. A value of the wrong type or range and a key that nothing has
// read become findings, so no key is accepted and ignored.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"
#include "stages/stage_file.h"

namespace zl {

// Collects findings and the source of each value.
class Findings {
 public:
  using Severity = ConfigFinding::Severity;
  explicit Findings(const ConfigSource& source) : source_(source) {}

  void add(Severity severity, const JsonValue& at, const std::string& key, const std::string& text);
  // "ds.json:7", "--set zero_optimization.stage" or "--stage".
  std::string where(const JsonValue& value) const;
  // All errors and the first notes and warnings: those of the file by line, then those of --set and
  // flags.
  std::vector<ConfigFinding> take();

  std::map<std::string, std::string> origins, automatic;  // as in LoadedConfig

 private:
  struct Entry {
    int line;
    ConfigFinding finding;
  };
  const ConfigSource& source_;
  std::vector<Entry> entries_;
};

// One object of a configuration, which may be absent.
class ConfigBlock {
 public:
  using Severity = ConfigFinding::Severity;
  ConfigBlock(Findings& findings, const JsonValue& object, std::string path = "")
      : ConfigBlock(findings, &object, object, std::move(path)) {}

  // Stores the value of a key in `target` and returns true. If the key is absent, null, "auto" or
  // wrong, `target` stays. T: the type of the key in C++; texts may be one string or an array.
  template <class T>
  bool read(const char* key, T& target) {
    const JsonValue* value = fitting(key);
    if (value != nullptr) store(*value, target);
    return value != nullptr;
  }
  template <class T>
  std::optional<T> get(const char* key) {
    T value{};
    return read(key, value) ? std::optional(value) : std::nullopt;
  }
  ConfigBlock block(const char* key);

  // The value of a key, read or not; null if the key is absent.
  const JsonValue* peek(const char* key) const {
    return object_ == nullptr ? nullptr : object_->find(key);
  }
  bool present() const { return object_ != nullptr; }
  bool from_file() const { return present() && object_->set < 0; }
  // Whether the key has a value other than null and "auto".
  bool given(const char* key) const;
  // Counts the key as read. Returns its value, if it is given.
  const JsonValue* take(const char* key);

  // A finding at the key; if that is absent, at the block.
  void error(const char* key, const std::string& text) { add(Severity::error, key, text); }
  void warn(const char* key, const std::string& text) { add(Severity::warning, key, text); }
  void note(const char* key, const std::string& text) { add(Severity::note, key, text); }
  // A finding for each key that was not read, unless its value says what zerolab does anyway.
  // `user`: what does not use these keys, such as "SGD".
  void finish(const std::string& user = "");

 private:
  ConfigBlock(Findings& findings, const JsonValue* object, const JsonValue& at, std::string path)
      : findings_(findings), object_(object), at_(at), path_(std::move(path)) {}

  void store(const JsonValue& value, bool& target) const { target = value.boolean; }
  void store(const JsonValue& value, Recompute& target) const;
  void store(const JsonValue& value, uint64_t& target) const { target = *to_seed(value); }
  void store(const JsonValue& value, std::string& target) const { target = value.text; }
  void store(const JsonValue& value, int64_t& target) const {
    target = *to_whole(value, is_typed_block(path_));
  }
  void store(const JsonValue& value, double& target) const {
    target = *to_number(value, is_typed_block(path_));
  }
  void store(const JsonValue& value, std::vector<std::string>& target) const;
  void store(const JsonValue& value, std::vector<double>& target) const;
  void add(Severity severity, const char* key, const std::string& text);
  std::string full(const std::string& key) const;
  const JsonValue* fitting(const char* key);  // take(), if type and range are right
  bool is_absent(const ConfigKey& key, const JsonValue& value);  // null or "auto"
  void unread(const ConfigKey& key, const JsonValue& value, const std::string& user);
  void unknown(const JsonMember& member);

  Findings& findings_;
  const JsonValue* object_;  // null: every key is absent
  const JsonValue& at_;      // the place of findings about absent keys
  std::string path_;
  std::set<std::string> read_;
};

// Batch sizes: two of the three keys give the third.
struct BatchSizes {
  int64_t micro_batch = 4, accumulation = 1;
  std::map<std::string, std::string> derived;  // as in LoadedConfig
};
BatchSizes read_batch_sizes(ConfigBlock& top, int ranks, bool file_given);

void read_optimizer(ConfigBlock optimizer, OptimizerConfig& config);
void read_scheduler(ConfigBlock scheduler, const Config& run, ScheduleConfig& config);
// `stage`: by which keys are judged; empty: several will run. `old`: cpu_offload or
// cpu_offload_param is true.
void read_offload_optimizer(ConfigBlock& zero, std::optional<StageKind> stage, bool old,
                            Config& config);
void read_offload_param(ConfigBlock& zero, std::optional<StageKind> stage, bool old,
                        Config& config);
// fp16, bf16, data_types and communication_data_type. `of_flag` wins over the file.
void read_precision(ConfigBlock& top, std::optional<Dtype> of_flag, Config& config);
// activation_checkpointing.
void read_activations(ConfigBlock block, ConfigBlock& zerolab, int ranks, Config& config);
void read_zero(ConfigBlock& top, ConfigBlock& zerolab, const ConfigSource& source, Config& config);

}  // namespace zl
