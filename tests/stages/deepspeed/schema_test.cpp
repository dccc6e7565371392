// Every key of the schema with every kind of value: no crash, and a finding for each wrong type.
// The output of config explain: every setting with its origin and both defaults.

#include <set>
#include <sstream>

#include "tests/paths.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::keys, config_case::load, config_case::sets_of, config_case::with;
using zl::ConfigKey, zl::ConfigValue;

namespace {

// clang-format off
const char* const kValues[] = {
    "null", "true", "false", "0", "1", "-1", "5", "2.5", "-0.5", "5e8", "1e300",
    "9223372036854775807", "-9223372036854775808", "\"\"", "\"abc\"", "\"2\"", "\"yes\"",
    "\"auto\"", "[]", "[1]", "[\"a\"]", "[[]]", "{}", "{\"a\": 1}", "[0.5, 0.5]", "\"true\"",
    "\"false\""};
// clang-format on

// --set of what makes the key one that is read: SGD's momentum needs SGD.
std::vector<std::string> company(const std::string& path) {
  const auto ends = [&](const char* name) { return path.ends_with(name); };
  std::vector<std::string> sets;
  if (path != "optimizer" && path != "optimizer.type" && path != "optimizer.params")
    sets.push_back(ends("momentum") || ends("dampening") || ends("nesterov") ? "optimizer.type=SGD"
                   : ends("adam_w_mode")                                     ? "optimizer.type=Adam"
                                         : "optimizer.type=AdamW");
  if (path != "scheduler" && path != "scheduler.type" && path != "scheduler.params") {
    const bool cosine = ends("ratio") || ends("total_num_steps");
    sets.push_back(cosine ? "scheduler.type=WarmupCosineLR" : "scheduler.type=WarmupLR");
    if (cosine) sets.push_back("scheduler.params.total_num_steps=9000");
  }
  return sets;
}

// "a whole number of at least 1": no honoured value is an object.
std::string type_of(const ConfigKey& key) { return key.member.store("{}"); }

zl::LoadedConfig load_with(const ConfigKey& key, const std::string& value) {
  auto sets = company(key.path());
  if (key.member.store && key.unused.reason.find("stage 3") != std::string::npos)
    sets.push_back("zero_optimization.stage=3");
  if (key.path().ends_with("sub_group_size"))
    for (const char* set :
         {"zero_optimization.stage=1",
          R"(zero_optimization.offload_optimizer={"device": "nvme", "nvme_path": "/x"})"})
      sets.push_back(set);
  if (std::string(key.block) == "fp16") sets.push_back("fp16.enabled=true");
  if (key.path().ends_with("persistence_threshold")) sets.push_back("zerolab.as=deepspeed-3");
  sets.push_back(key.path() + "=" + value);
  return load("", sets);
}

// Whether there is a finding about the key itself.
bool found(const zl::LoadedConfig& loaded, const ConfigKey& key) {
  for (const zl::ConfigFinding& f : loaded.findings)
    if (f.key == key.path()) return true;
  return false;
}

bool is_honoured(const ConfigKey& key) {
  return key.member.show || key.key == "cpu_offload" || key.key == "torch_adam";
}
bool is_whole(const ConfigKey& key) {
  return key.member.store && type_of(key).starts_with("a whole number");
}
bool is_number(const ConfigKey& key) {
  return is_whole(key) || (key.member.store && type_of(key).find("a number") != std::string::npos);
}

// Whether a value has a wrong type by the schema, written independently of the reader.
bool plainly_wrong(const ConfigKey& key, const std::string& v) {
  const bool object = v[0] == '{', array = v[0] == '[', text = v[0] == '"',
             absent = v == "null" || v == "\"auto\"", boolean = v == "true" || v == "false";
  if (absent || !is_honoured(key)) return false;
  const std::string type = type_of(key);
  if (type == "true or false") return !boolean && v != "\"true\"";
  if (is_number(key)) return boolean || object || array || text;
  if (type.starts_with("a string")) return !text;
  if (type == "an array of strings") return !text && v != "[]" && v != "[\"a\"]";
  if (type.starts_with("an array of two")) return v != "[0.5, 0.5]";
  CHECK(type.starts_with("one of "));  // none of the texts is a choice
  return key.path() != "zerolab.recompute" || !(boolean || v == "\"true\"" || v == "\"false\"");
}

ConfigValue value(const zl::LoadedConfig& loaded, const std::string& key) {
  for (const ConfigValue& v : effective_values(loaded))
    if (v.key == key) return v;
  return {};
}

// Keys of the schema that have a value.
std::set<std::string> honoured() {
  std::set<std::string> paths;
  for (const ConfigKey& key : keys())
    if (is_honoured(key) && key.path() != "zero_optimization.cpu_offload" &&
        key.path() != "optimizer.params.torch_adam")  // it chooses weight_decay's default
      paths.insert(key.path());
  return paths;
}

}  // namespace

TEST_CASE(
    "every kind of value of every key is read without a crash, and a wrong type has a finding",
    "[stages]") {
  int wrong = 0;
  for (const ConfigKey& key : keys()) {
    for (const std::string value : kValues) {
      CAPTURE(key.path(), value);
      const auto loaded = load_with(key, value);
      if (!plainly_wrong(key, value)) continue;
      ++wrong;
      CHECK(found(loaded, key));
      if (!key.path().starts_with("zero_optimization")) CHECK_FALSE(loaded.ok());
    }
  }
  CHECK(wrong > 1000);
}

TEST_CASE("a name with a zero byte and more behind it is none of the names", "[stages]") {
  int names = 0;
  zl::Config config;
  for (const ConfigKey& key : config_keys(config)) {
    if (!key.member.store || !type_of(key).starts_with("one of")) continue;
    std::istringstream quoted(type_of(key));
    for (std::string name; std::getline(std::getline(quoted, name, '"'), name, '"'); ++names) {
      CAPTURE(key.path(), name);
      CHECK(key.member.store("\"" + name + "\"") == "");
      CHECK(key.member.store("\"" + name + "\\u0000x\"") != "");
    }
  }
  CHECK(names > 20);
  CHECK_FALSE(load("", {"gradient_allreduce_op=\"mean\\u0000x\""}).ok());
}

TEST_CASE("a number is never NaN, infinite, a boolean, or negative where that has no meaning",
          "[stages]") {
  int numbers = 0;
  for (const ConfigKey& key : keys()) {
    if (!is_number(key)) continue;
    ++numbers;
    for (const char* value :
         {"NaN", "nan", "inf", "-inf", "Infinity", "-Infinity", "1e400", "true", "false"}) {
      CAPTURE(key.path(), value);
      CHECK(found(load_with(key, value), key));
    }
    const std::string type = type_of(key);
    const auto says = [&](const char* part) { return type.find(part) != std::string::npos; };
    if (says(" least 0") || says(" least 1") || says(" from 0") || says(" from 1 "))
      CHECK(found(load_with(key, "-3"), key));
    if (says(" least 1") || says(" from 1 ")) CHECK(found(load_with(key, "0"), key));
    if (says(" to ") && !says("2^64")) CHECK(found(load_with(key, "1e15"), key));
    if (is_whole(key)) CHECK(found(load_with(key, "2.5"), key));
  }
  CHECK(numbers > 30);
}

TEST_CASE("a number from 2^63 on is the number that it says, or refused", "[stages]") {
  zl::Config config;
  for (const ConfigKey& key : zl::config_keys(config))
    for (const std::string text : {"9223372036854775808", "18446744073709551615"}) {
      CAPTURE(key.path(), text);
      if (key.member.show && is_number(key) && key.member.store(text) == "")
        CHECK(std::stod(key.value()) == std::stod(text));
    }
  CHECK(with("gradient_clipping=10000000000000000000").config.gradient_clipping == 1e19);
}

TEST_CASE("a good value of an honoured number has no finding", "[stages]") {
  for (const ConfigKey& key : keys()) {
    if (!is_number(key)) continue;
    CAPTURE(key.path());
    const bool total = key.path().ends_with("total_num_steps");
    CHECK_FALSE(found(load_with(key, total                             ? "1e4"
                                     : type_of(key).ends_with(" to 3") ? "3"
                                                                       : "4"),
                      key));
  }
}

TEST_CASE("a number in quotes is none, and \"true\" is true", "[stages]") {
  for (const std::string& taken :
       sets_of(R"(.stage=2.0; .reduce_bucket_size=5e8; fp16.hysteresis=3; fp16.loss_scale=128; )"
               R"(fp16={"enabled": "true"}; .overlap_comm="true"; csv_monitor.enabled=false; )"
               R"(train_batch_size=32.0; )"
               R"(.stage3_module_granularity_threshold=-1; .offload_optimizer.ratio=1; )"
               R"(communication_data_type="FP16"; zerolab.recompute="full")")) {
    CAPTURE(taken);
    CHECK(load("", {taken}).ok());
  }
  for (const std::string& refused : sets_of(
           R"(.stage=2.5; .stage=true; .stage="2"; .stage="+-1"; .reduce_bucket_size="5e8"; )"
           R"(.reduce_bucket_size="1__0"; fp16.enabled="maybe"; fp16.enabled=2; fp16.enabled=1; )"
           R"(fp16.loss_scale="nan"; fp16.loss_scale=true; fp16.loss_scale_window=true; )"
           R"(fp16.min_loss_scale=true; .offload_optimizer.device="CPU"; )"
           R"(gradient_clipping="1.0"; csv_monitor.enabled="yes"; csv_monitor.enabled=1; )"
           R"(.overlap_comm="false"; optimizer.params.bias_correction="false"; )"
           R"(train_batch_size="32"; zerolab.recompute="yes"; zerolab.recompute="Full"; )"
           R"(zerolab.steps="7")")) {
    CAPTURE(refused);
    CHECK_FALSE(load("", {refused}).ok());
  }
  CHECK(load("", {R"(fp16={"enabled": "true"})"}).config.precision == zl::Dtype::f16);
}

TEST_CASE("every key is honoured, or its value describes what zerolab does, or it has a finding",
          "[stages]") {
  for (const ConfigKey& key : keys()) {
    if (key.member.store) continue;
    CAPTURE(key.path(), key.unused.reason);
    CHECK(!key.unused.reason.empty());
    const std::string always = key.always == "mean" ? "\"mean\""
                               : key.always.empty() ? "false"
                                                    : key.always;
    if (always != "absent") CHECK_FALSE(found(load_with(key, always), key));
    const auto loaded = load_with(key, always == "true" ? "false" : "{\"device\": \"cpu\"}");
    CHECK(found(loaded, key));
    CHECK((!key.unused.refused || !loaded.ok()));
  }
}

TEST_CASE("no key is in the schema twice, and every row is complete", "[stages]") {
  std::set<std::string> seen;
  zl::Config config;
  const std::vector<ConfigKey> bound = zl::config_keys(config);
  for (const ConfigKey& key : keys()) {
    CAPTURE(key.path());
    CHECK(seen.insert(key.path()).second);
    CHECK(zl::find_key(keys(), key.block, key.key) == &key);
    if (!is_honoured(key)) continue;
    for (const std::string& value : {key.deepspeed, key.value()})
      if (!value.empty() && value != "null")
        CHECK(zl::find_key(bound, key.block, key.key)->member.store(value) == "");
  }
  CHECK(seen.size() > 180);
}

TEST_CASE("every honoured key has an effective value in a configuration that uses it", "[stages]") {
  const std::string common = R"("csv_monitor": {"enabled": true}, )"
                             R"("tensorboard": {"enabled": true}, )"
                             R"("train_batch_size": 8)";
  std::set<std::string> found;
  for (const std::string& text :
       {"{" + common + "}",
        "{" + common + R"(, "optimizer": {"type": "SGD"}, "fp16": {"enabled": true},
        "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 2000}}})",
        "{" + common + R"(, "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR"}})"}) {
    for (const ConfigValue& v : effective_values(load(text))) {
      found.insert(v.key);
      CHECK_FALSE(v.origin.empty());
    }
  }
  for (const std::string& key : honoured()) {
    CAPTURE(key);
    CHECK(found.count(key) == 1);
  }
  CHECK(found.count("zero_optimization.offload_optimizer.ratio") == 0);  // it has no effect
}

TEST_CASE("DeepSpeed's default is listed where it differs from zerolab's, and only there",
          "[stages]") {
  const auto loaded = load("");
  for (const std::string& key : sets_of(
           "gradient_clipping; .reduce_bucket_size; .overlap_comm; .stage3_prefetch_bucket_size; "
           ".stage3_param_persistence_threshold; .stage3_max_reuse_distance")) {
    CAPTURE(key);
    CHECK(value(loaded, key).differ);
  }
  for (const std::string& key :
       sets_of("optimizer.params.lr; optimizer.params.eps; .stage; fp16.enabled; "
               "csv_monitor.enabled; tensorboard.enabled; zerolab.seed")) {
    CAPTURE(key);
    CHECK(value(loaded, key).key == key);
    CHECK_FALSE(value(loaded, key).differ);
  }
  const auto theirs = load("", {"zerolab.defaults=deepspeed"});
  CHECK(value(theirs, "zero_optimization.reduce_bucket_size").value == "500000000");
  CHECK(value(theirs, "zero_optimization.reduce_bucket_size").origin ==
        "default: zerolab.defaults is \"deepspeed\"");
  CHECK(value(theirs, "zerolab.defaults").value == "\"deepspeed\"");
}

TEST_CASE("the schema's defaults are those of an empty configuration", "[stages]") {
  for (const ConfigValue& v : effective_values(load(""))) {
    CAPTURE(v.key);
    CHECK(v.value == (v.key == "train_batch_size" ? "16" : v.ours));  // 4 ranks of 4
  }
}

TEST_CASE(
    "the tables of tutorials/reference/configuration.md are the table's, with a sentence each",
    "[stages]") {
  // ZEROLAB_RECORD_TEXTS=1 prints them again, and keeps the page's sentence about each key.
  const std::string file = ZEROLAB_SOURCE_DIR "/tutorials/reference/configuration.md";
  std::ifstream in(file);
  const std::string begin = "<!-- printed by a test -->\n\n",
                    page{std::istreambuf_iterator<char>(in), {}};
  const size_t at = page.find(begin) + begin.size();
  REQUIRE(at > begin.size());
  std::map<std::string, std::string> sentences;  // the last of five cells
  std::istringstream rows(page.substr(at));
  std::string section, expected, before;
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("###")) section = row;
    if (std::ranges::count(row, '|') == 6)
      sentences[section + row.substr(0, row.find('|', 1))] =
          row.substr(row.rfind('|', row.size() - 2) + 1);
  }
  const auto cell = [](const std::string& json) { return json.empty() ? "–" : "`" + json + "`"; };
  section = "";
  for (const ConfigKey& k : keys()) {
    if (!k.member.store) break;
    const std::string heading = "### " + (k.block.empty() ? "Top level" : cell(k.block)),
                      key = "| " + cell(k.key) + " ";
    if (heading != section)
      expected += zl::str(section.empty() ? "" : "\n", heading,
                          "\n\n| key | type | DeepSpeed's default | ours | meaning |\n"
                          "|---|---|---|---|---|\n");
    section = heading;
    CAPTURE(heading, key);
    CHECK(sentences.contains(heading + key));
    expected += zl::str(key, "| ", type_of(k), " | ", cell(k.deepspeed), " | ", cell(k.value()),
                        " |", sentences[heading + key], "\n");
  }
  expected += "\n### Keys without effect\n\n| keys | why |\n|---|---|\n";
  for (const ConfigKey& k : keys()) {
    if (k.member.store) continue;
    const std::string why =
        (k.unused.refused ? " | refused: " : " | no effect: ") + k.unused.reason + " |\n";
    expected += (why == before ? ", " : before + "| ") +
                cell(k.path() + (k.always.empty() ? "" : "=" + k.always));
    before = why;
  }
  expected += before;
  if (std::getenv("ZEROLAB_RECORD_TEXTS")) std::ofstream(file) << page.substr(0, at) << expected;
  CHECK((std::getenv("ZEROLAB_RECORD_TEXTS") || page.substr(at) == expected));
  CHECK(expected.find("| `reduce_bucket_size` | a whole number of at least 1 | `500000000` |") !=
        std::string::npos);
}
