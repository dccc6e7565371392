// Edge cases: long blocks and keys, null, numbers at their limits, stages that a flag selects.

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::joined, config_case::lines, config_case::load,
    config_case::says;
using zl::Dtype, zl::StageKind;

namespace {

zl::LoadedConfig load_of(const std::vector<std::string>& sets, std::optional<StageKind> stage,
                         bool several = false) {
  return zl::load_config({.sets = sets, .ranks = 4, .stage = stage, .several_stages = several});
}

}  // namespace

TEST_CASE("no number of unread keys hides an error, in any block", "[stages]") {
  std::string many;
  for (int i = 0; i < 80; ++i) many += "\"unknown" + std::to_string(i) + "\": 1, ";
  const auto top =
      load("{" + many +
           R"("amp": {"enabled": true}, "gradient_allreduce_op": "sum", "train_batch_size": 4})");
  CHECK(errors(top) == 2);
  CHECK(top.findings.size() == 53);
  CHECK(says(top, "ds.json:1: error: amp: DeepSpeed 0.19.8 refuses a file with this key"));
  CHECK(says(top, "ds.json:1: error: gradient_allreduce_op: cannot be honoured"));
  CHECK(says(top, "ds.json:1: warning: 30 more notes and warnings are left out"));
  const auto zero =
      load("{\"train_batch_size\": 4, \"zero_optimization\": {" + many + "\"stage\": 1}}");
  CHECK(errors(zero) == 80);
  CHECK(zero.findings.size() == 80);
  std::string one_more;
  for (int i = 0; i < 51; ++i) one_more += "\"unknown" + std::to_string(i) + "\": 1, ";
  CHECK(says(load("{" + one_more + "\"train_batch_size\": 4}"),
             "ds.json:1: warning: 1 more notes and warnings are left out"));
}

TEST_CASE("tensor parallelism is refused under each of its names", "[stages]") {
  for (const char* set :
       {R"(tensor_parallel={"autotp_size": 2})", R"(tensor_parallel={"tp": {"tp_size": 2}})",
        R"(tensor_parallel={"tensor_parallel": {"tp_size": "2"}})"}) {
    CAPTURE(set);
    const auto loaded = load("", {set});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, "--set tensor_parallel: error: ",
               "_size: cannot be honoured: there is no tensor parallelism"));
  }
  CHECK(load("", {R"(tensor_parallel={"autotp_size": 0, "tp": {"tp_size": 1}})"}).findings.empty());
  CHECK(says(load("", {"tensor_parallel.tp_size=1"}),
             "--set tensor_parallel.tp_size: error: unknown key",
             "it belongs in \"tensor_parallel.tp\" (DeepSpeed refuses it)"));
  CHECK(says(load("", {"tensor_parallel.tp.size=1"}),
             "--set tensor_parallel.tp.size: error: unknown key"));
  CHECK(says(load("", {"tensor_parallel.dtype=fp16"}),
             "--set tensor_parallel.dtype: error: DeepSpeed 0.19.8 refuses a file with this key"));
  for (const char* set : {"csv_monitor.enable=true", "tensorboard.enable=true",
                          "comms_logger.enable=true", "tensor_parallel.tp.enable=true"}) {
    CAPTURE(set);
    CHECK(says(load("", {set}), "--set ", "error: unknown key"));
  }
}

TEST_CASE("a path with a zero byte is an error", "[stages]") {
  for (const char* key : {"zerolab.data", "csv_monitor.output_path", "csv_monitor.job_name",
                          "tensorboard.output_path", "tensorboard.job_name"}) {
    CAPTURE(key);
    const auto loaded = load("", {std::string(key) + "=\"a\\u0000b\""});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded,
               std::string("--set ") + key + ": error: expected a string without zero bytes"));
  }
}

TEST_CASE("a loss scale that is used must be a normal fp32 number, and so must its reciprocal",
          "[stages]") {
  for (const char* scale : {"1e-38", "1e39", "1e300", "5e-324", "8.6e37"}) {
    CAPTURE(scale);
    const std::string set = std::string("fp16.loss_scale=") + scale;
    CHECK(says(load("", {"fp16.enabled=true", set}),
               "--set fp16.loss_scale: error: expected 0 or a number from 2^-126 to 2^126"));
    const auto off = load("", {set});
    CHECK(off.ok());
    CHECK(says(off, "--set fp16.loss_scale: note: has no effect: fp16 is not enabled"));
    CHECK_FALSE(zl::load_config({.sets = {set}, .ranks = 4, .precision = Dtype::f16}).ok());
  }
  for (const char* scale : {"8.5e37", "1.18e-38"}) {
    CAPTURE(scale);
    CHECK(
        load("", {"fp16.enabled=true", std::string("fp16.loss_scale=") + scale}).findings.empty());
  }
  for (const char* power : {"127", "-127", "1000000"}) {
    CAPTURE(power);
    const std::string set = std::string("fp16.initial_scale_power=") + power;
    CHECK(says(load("", {"fp16.enabled=true", set}),
               "--set fp16.initial_scale_power: error: expected a whole number from -126 to 126"));
    CHECK(says(load("", {"fp16.enabled=true", "fp16.loss_scale=8", set}),
               "--set fp16.initial_scale_power: note: has no effect: the loss scale is fixed"));
    CHECK(says(load("", {set}),
               "--set fp16.initial_scale_power: note: has no effect: fp16 is not enabled"));
  }
  CHECK(load("", {"fp16.enabled=true", "fp16.initial_scale_power=-3"})
            .config.loss_scale.initial_scale_power == -3);
}

TEST_CASE("with a hysteresis below 1 the scale is never halved, as in DeepSpeed", "[stages]") {
  const auto zero = load("", {"fp16.enabled=true", "fp16.hysteresis=0"});
  CHECK((zero.ok() && zero.config.loss_scale.hysteresis == 0));
  CHECK(says(zero,
             "--set fp16.hysteresis: warning: 0: the loss scale is never halved, as in DeepSpeed"));
  const auto off = load("", {"fp16.hysteresis=-2"});
  CHECK((off.ok() && off.config.loss_scale.hysteresis == 2));
  CHECK(says(off, "--set fp16.hysteresis: note: has no effect: fp16 is not enabled"));
}

TEST_CASE("a --set that begins with a bracket and is not JSON is an error with the reason",
          "[stages]") {
  CHECK(says(load("", {"optimizer.params.betas=[0.9, 0.95"}),
             "--set optimizer.params.betas: error: the value:1: the text ends inside ",
             "the array that line 1 opens"));
  CHECK(says(load("", {"fp16={enabled: true}"}),
             "--set fp16: error: the value:1: expected a key in double quotes", "HJSON"));
  CHECK(says(load("", {R"(fp16= {"enabled": true, "enabled": true})"}),
             "--set fp16: error: the value:1: duplicate key \"enabled\""));
  CHECK(load("", {"zerolab.data=a[1]"}).config.data == "a[1]");
}

TEST_CASE("keys are judged by the stage that runs, not by the stage in the file", "[stages]") {
  const std::string ratio =
      R"(zero_optimization={"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})";
  const std::string norm = R"(zero_optimization={"stage": 1, "compute_grad_norm": false})";
  const std::vector<std::string> prescale = {"zero_optimization.stage=1", "prescale_gradients=true",
                                             "gradient_predivide_factor=2"};
  CHECK(load_of({ratio}, {}).ok());
  CHECK(says(load_of({ratio}, StageKind::zero2),
             "--set zero_optimization: error: ", "ratio: 0.5 needs stage 3"));
  CHECK(load_of({norm}, {}).ok());
  CHECK(errors(load_of({norm}, StageKind::zero3)) == 1);
  CHECK(load_of(prescale, {}).ok());
  CHECK(errors(load_of(prescale, StageKind::zero2)) == 2);
  for (const char* stage : {"0", "1", "2", "3"}) {
    CAPTURE(stage);
    const std::string at = std::string("zero_optimization.stage=") + stage;
    for (const auto& sets : {std::vector<std::string>{ratio, at},
                             {norm, at},
                             {prescale[0], prescale[1], prescale[2], at}}) {
      const auto several = load_of(sets, {}, true);
      INFO(joined(several));
      CHECK(several.ok());
      CHECK_FALSE(several.findings.empty());
    }
  }
}

TEST_CASE("null means that a key is absent, which is noted where it is not DeepSpeed's default",
          "[stages]") {
  for (const char* key :
       {"fp16", "fp16.enabled", "bfloat16", "zero_optimization", "zero_optimization.stage",
        "comms_logger", "csv_monitor", "tensorboard", "optimizer", "optimizer.params.lr",
        "scheduler", "gradient_clipping", "gradient_predivide_factor", "wall_clock_breakdown",
        "data_types", "tensor_parallel", "train_batch_size", "steps_per_print",
        "communication_data_type"}) {
    CAPTURE(key);
    const auto loaded = load("", {std::string(key) + "=null"});
    CHECK(loaded.findings.size() == 1);
    CHECK(says(loaded, std::string("--set ") + key + ": note: is null: taken as absent"));
  }
  for (const char* key : {"zero_optimization.overlap_comm", "zero_optimization.zenflow",
                          "zero_optimization.offload_optimizer", "log_level", "vocabulary_size"}) {
    CAPTURE(key);
    CHECK(load("", {std::string(key) + "=null"}).findings.empty());
  }
}

TEST_CASE("zenflow changes results in DeepSpeed, so it is an error", "[stages]") {
  for (const char* value : {"{}", R"({"topk_ratio": 0.1, "update_interval": 4})"}) {
    const auto loaded = load("", {std::string("zero_optimization.zenflow=") + value});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, "--set zero_optimization.zenflow: error: cannot be honoured: ZenFlow"));
  }
  CHECK(load("", {"zero_optimization.stage=2"}).ok());
}

TEST_CASE("a limit of zerolab does not quote DeepSpeed", "[stages]") {
  const auto batch = load("", {"train_batch_size=1048577"});
  CHECK(errors(batch) == 1);
  CHECK(joined(batch).find("DeepSpeed") == std::string::npos);
  CHECK(joined(load("", {"zero_optimization.allgather_bucket_size=1e19"})).find("DeepSpeed") ==
        std::string::npos);
}

TEST_CASE("advice about a batch respects the limits of a run", "[stages]") {
  const auto product = load(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1048576, )"
                            R"("gradient_accumulation_steps": 2})");
  CHECK(says(product, "ds.json:1: error: train_batch_size: ", "Leave one of the three out"));
  const auto ranks = load(R"({"train_batch_size": 1000, "train_micro_batch_size_per_gpu": 1, )"
                          R"("gradient_accumulation_steps": 1})");
  CHECK(says(ranks, "ds.json:1: error: train_batch_size: ", "Use 4, leave one of the three out"));
  CHECK(joined(ranks).find("--ranks") == std::string::npos);
  const auto above = load(R"({"train_batch_size": 1048575})");
  CHECK(says(above, "ds.json:1: error: train_batch_size: ", "Use 1048572 or 1048576"));
  CHECK(joined(load(R"({"train_batch_size": 1048575})", {}, 3)).empty());
  const auto none = load(R"({"train_batch_size": 5, "train_micro_batch_size_per_gpu": 1048576})");
  CHECK(says(none, "ds.json:1: error: train_batch_size: ",
             "Use smaller micro-batches, fewer of them or fewer ranks"));
}

TEST_CASE("an empty key is shown, a long key is cut, and a wrong array is shown", "[stages]") {
  CHECK(says(load(R"({"": 1, "train_batch_size": 4})"), "ds.json:1: warning: \"\": unknown key"));
  CHECK(says(load(R"({"fp16": {"": 1}, "train_batch_size": 4})"),
             "ds.json:1: error: fp16.\"\": unknown key"));
  const std::string key(100'000, 'k');
  for (const auto& loaded : {load("{\"" + key + "\": 1, \"train_batch_size\": 4}"),
                             load("", {key + "=1"}), load("", {key + ".=1"})})
    for (const std::string& line : lines(loaded)) CHECK(line.size() < 400);
  CHECK(says(load("", {"zerolab.no_weight_decay=[\"a\", 1]"}), "--set ",
             "expected an array of strings, not an array [the string \"a\", 1]"));
  CHECK(says(load("", {"optimizer.params.betas=[0.9, 0.9, 0.9]"}), "--set ",
             "not an array [0.9, 0.9, 0.9]"));
}

TEST_CASE("a pipe is read while it delivers, and refused after two silent seconds", "[stages]") {
  const config_case::File name("");
  std::filesystem::remove(name.path());
  REQUIRE(mkfifo(name.path().c_str(), 0600) == 0);
  try {
    zl::load_config({name.path(), {}, 1});
    FAIL("there is no writer");
  } catch (const zl::InputError& e) {
    CHECK(std::string(e.what()) ==
          name.path() + " is not a regular file, and gave nothing for 2 seconds");
  }
  std::thread writer([&] { std::ofstream(name.path()) << R"({"train_batch_size": 8})"; });
  const auto loaded = zl::load_config({name.path(), {}, 4});
  writer.join();
  CHECK(loaded.config.micro_batch == 2);
}
