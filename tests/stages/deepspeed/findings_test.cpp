// Keys without effect and unknown keys are findings, each with its line. That all errors of a file
// are reported at once: tests/zerolab/config_test.cpp.

#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/stages/deepspeed/config_case.h"

using Catch::Matchers::ContainsSubstring;
using config_case::check, config_case::errors, config_case::joined, config_case::lines,
    config_case::load, config_case::says, config_case::sets_of, config_case::with;
using zl::Dtype, zl::str;

TEST_CASE(
    "a key without effect is a note, an unknown key a warning or an error with the nearest key",
    "[stages]") {
  const auto loaded = load(R"({"train_batch_size": 4,
"dump_state": true, "zero_optimisation": {"stage": 2}, "lr": 3,
"comet": {"enabled": true}, "wandb": {"enabled": false}, "entirely_else": 1,
"zero_optimization": {"aio": {}, "stag": 2, "gradient_clipping": 1, )"
                           R"("pin_memory": true, "enabled": true}})");
  CHECK(errors(loaded) == 5);
  CHECK(loaded.config.stage == zl::StageKind::ddp);
  CHECK(says(loaded, "ds.json:2: note: dump_state: has no effect: "));
  CHECK(says(loaded,
             "ds.json:2: warning: zero_optimisation: unknown key; did you mean "
             "\"zero_optimization\"? (DeepSpeed ignores it)"));
  CHECK(says(loaded,
             "ds.json:2: warning: lr: unknown key; it belongs in \"optimizer.params\" (DeepSpeed "
             "ignores it)"));
  CHECK(says(loaded, "ds.json:3: note: comet: has no effect: zerolab has no such mechanism"));
  CHECK(says(loaded, "ds.json:3: warning: entirely_else: unknown key (DeepSpeed ignores it)"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.aio: unknown key; it belongs at the top level "
             "(DeepSpeed "
             "refuses it)"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.gradient_clipping: unknown key; it belongs at "
             "the top level"));
  CHECK(says(loaded, "ds.json:4: error: zero_optimization.stag: ", "did you mean \"stage\"?"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.pin_memory: unknown key; it belongs in "
             "\"zero_optimization.offload_optimizer\" (DeepSpeed refuses it)"));
  // Several blocks have "enabled", so no block is suggested.
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.enabled: unknown key (DeepSpeed refuses it)"));
  CHECK(loaded.findings.size() == 10);  // wandb is off, as asked
}

TEST_CASE("the nearest name is at most two edits away and shares more than half", "[stages]") {
  const std::vector<std::string> names = {"tiny", "small", "gpt2"};
  CHECK(zl::nearest_name("smal", names) == "small");
  CHECK(zl::nearest_name("gtp2", names) == "gpt2");  // two neighbours that swap are one edit
  CHECK(zl::nearest_name("x", names).empty());
  std::vector<std::string> keys;
  for (const zl::ConfigKey& key : config_case::keys())
    if (key.block == "zero_optimization") keys.emplace_back(key.key);
  CHECK(zl::nearest_name("stage3_prefech_bucket_sizes", keys) == "stage3_prefetch_bucket_size");
  CHECK(zl::nearest_name("completely_different", keys).empty());
}

TEST_CASE("null means that a key is absent", "[stages]") {
  for (const std::string& key :
       sets_of("fp16; fp16.enabled; bfloat16; zero_optimization; .stage; .overlap_comm; .zenflow; "
               ".offload_optimizer; comms_logger; csv_monitor; tensorboard; optimizer.params.lr; "
               "gradient_clipping; gradient_predivide_factor; log_level; wall_clock_breakdown; "
               "data_types; tensor_parallel; train_batch_size; steps_per_print; "
               "communication_data_type; vocabulary_size"))
    check({{str(key, "=null").c_str(), ""}});
}

TEST_CASE("no number of unread keys hides an error, in any block", "[stages]") {
  const auto unknown = [](int n) {
    std::string keys;
    for (int i = 0; i < n; ++i) keys += str("\"unknown", i, "\": 1, ");
    return keys;
  };
  const auto top = load("{" + unknown(80) +
                        R"("amp": {"enabled": true}, )"
                        R"("gradient_allreduce_op": "sum", "train_batch_size": 4})");
  CHECK((errors(top) == 2 && top.findings.size() == 82));
  CHECK(says(top, "ds.json:1: error: amp: DeepSpeed 0.19.8 refuses this key"));
  CHECK(says(top, "ds.json:1: error: gradient_allreduce_op: gradients are averaged"));
  const auto zero =
      load("{\"train_batch_size\": 4, \"zero_optimization\": {" + unknown(80) + "\"stage\": 1}}");
  CHECK((errors(zero) == 80 && zero.findings.size() == 80));
}

TEST_CASE("a finding is one line without control characters or marks of writing direction",
          "[stages]") {
  const std::string mark = "\u202e", isolate = "\u2066";
  const auto control = load(
      "{\"train_micro_batch_size_per_gpu\": 1, \"two\\nlines\\u001b[2J\": "
      "{\"\\u009b\\t\\u007f\\u00e9\": 1}, \"fp16\": {\"a\\u0000b\": 1}}",
      {"x\ny=1"});
  const auto marks =
      load("{\"train_batch_size\": 4, \"a" + mark + "b\": 1, \"zerolab\": {\"model\": \"" + mark +
               "\"}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": "
               "\"\\u001b[2J\"}}}",
           {"x" + isolate + "=1", "optimizer.type=" + mark});
  CHECK(marks.findings.size() == 5);
  for (const auto& loaded : {control, marks})
    for (const std::string& line : lines(loaded)) {
      CAPTURE(line);
      CHECK(line.find_first_of("\n\x1b\t\x7f") == std::string::npos);
      for (const std::string& hidden : {std::string("\xc2\x9b"), mark, isolate})
        CHECK(line.find(hidden) == std::string::npos);
    }
  CHECK(says(control, "ds.json:1: warning: two\\nlines\\u001b[2J: unknown key"));
  CHECK(says(control, "--set x\\ny: error: "));
  CHECK(says(marks, "ds.json:1: warning: a\\u202eb: unknown key"));
  CHECK(says(marks, "--set x\\u2066: error: unknown key"));
  // An empty key is shown, and a long one is cut.
  CHECK(says(load(R"({"": 1, "train_batch_size": 4})"), "ds.json:1: warning: \"\": unknown key"));
  CHECK(says(load(R"({"fp16": {"": 1}, "train_batch_size": 4})"),
             "ds.json:1: error: fp16.\"\": unknown key"));
  const std::string key(100'000, 'k');
  CHECK(load("{\"" + key + "a\": 1, \"" + key + "b\": 1, \"train_batch_size\": 4}").ok());
  for (const auto& loaded : {load("{\"" + key + "\": 1, \"train_batch_size\": 4}"),
                             load("", {key + "=1"}), load("", {key + ".=1"})})
    for (const std::string& line : lines(loaded)) CHECK(line.size() < 400);
}

TEST_CASE("null is absent, the order of members says nothing, and a dot in a name is no block",
          "[stages]") {
  const auto finds = [](const std::string& text) {
    return joined(load(R"({"train_batch_size": 4, )" + text + "}"));
  };
  for (const char* fine : {R"("bf16": null, "bfloat16": {"enabled": true})", R"("scheduler": null)",
                           R"("zero_optimization": {"stage": 3, "prefetch_bucket_size": null,
            "stage3_prefetch_bucket_size": 5})",
                           R"("csv_monitor": {"enabled": true, "job_name": "true"})",
                           R"("zerolab": {"recompute": true})"}) {
    CAPTURE(fine);
    CHECK(finds(fine) == "");
  }
  CHECK(load(R"({"train_batch_size": 4, "bf16": null, "bfloat16": {"enabled": true}})")
            .config.precision == Dtype::bf16);
  const std::string type = R"("type": "Lamb")",
                    params = R"("params": {"amsgrad": true, "lr": "x", "betas": [1]})";
  CHECK(finds("\"optimizer\": {" + type + ", " + params + "}") ==
        finds("\"optimizer\": {" + params + ", " + type + "}"));
  const std::pair<const char*, const char*> table[] = {
      {R"("optimizer.params": {"lr": 3})", "warning: \"optimizer.params\": unknown key"},
      {R"("optimizer": {"params": {"betas": {"a": 0.9, "b": 0.95}}})", "expected an array"},
      {R"("zerolab": {"no_weight_decay": {"a": "b"}})", "expected an array of strings"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 0})",
       "must be at least 1 where losses are scaled"},
      {R"("zerolab": {"recompute": 5})", "\"full\", \"false\", \"true\", not 5"}};
  for (const auto& [text, said] : table) {
    CAPTURE(text);
    CHECK_THAT(finds(text), ContainsSubstring(said));
  }
  CHECK_THROWS_WITH(load(R"({"a": 1 "b": 2})"), ContainsSubstring(R"(no JSON: "\"b\"")"));
}
