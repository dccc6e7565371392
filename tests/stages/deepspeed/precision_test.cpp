// fp16, bf16, the types of communication and accumulation, offload, and reports.

#include <catch2/catch_test_macros.hpp>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::load, config_case::says;
using zl::Config, zl::Dtype, zl::engine_options, zl::EngineOptions, zl::OffloadDevice, zl::str,
    zl::Swap;

namespace {

// The configuration of these --sets, which must give no finding.
Config of(const std::vector<std::string>& sets) {
  const auto loaded = load("", sets);
  INFO(config_case::joined(loaded));
  CHECK(loaded.findings.empty());
  return loaded.config;
}

}  // namespace

TEST_CASE("fp16 and every number of its loss scale are honoured", "[stages]") {
  const Config none = of({}), off = of({"fp16.enabled=false"});
  CHECK((none.precision == Dtype::f32 && off.precision == Dtype::f32));
  CHECK((none.loss_scale.static_scale == 0 && none.loss_scale.initial_scale_power == 16 &&
         none.loss_scale.window == 1000));
  CHECK((none.loss_scale.hysteresis == 2 && !none.loss_scale.consecutive_hysteresis &&
         none.loss_scale.min_scale == 1));
  const Config c =
      of({R"(fp16={"enabled": true, "initial_scale_power": 8, "loss_scale_window": 50, )"
          R"("hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 4})"});
  CHECK(c.precision == Dtype::f16);
  CHECK((c.loss_scale.initial_scale_power == 8 && c.loss_scale.window == 50 &&
         c.loss_scale.hysteresis == 3));
  CHECK((c.loss_scale.consecutive_hysteresis && c.loss_scale.min_scale == 4 &&
         c.loss_scale.static_scale == 0));
  CHECK(of({R"(fp16={"enabled": true, "loss_scale": 0.5})"}).loss_scale.static_scale == 0.5);
}

TEST_CASE("the counts of a dynamic loss scale are checked only where it is used, as in DeepSpeed",
          "[stages]") {
  for (const char* key : {"loss_scale_window", "min_loss_scale"}) {
    CAPTURE(key);
    const std::string zero = std::string("fp16.") + key + "=0",
                      name = std::string("--set fp16.") + key;
    CHECK(says(load("", {"fp16.enabled=true", zero}),
               name + ": error: expected a whole number of at least 1, not 0"));
    const auto fixed = load("", {"fp16.enabled=true", "fp16.loss_scale=8", zero}),
               off = load("", {zero});
    CHECK((fixed.ok() && off.ok()));
    CHECK(says(fixed, name + ": note: has no effect: the loss scale is fixed"));
    CHECK(says(off, name + ": note: has no effect: fp16 is not enabled"));
    CHECK((fixed.config.loss_scale.window == 1000 && fixed.config.loss_scale.min_scale == 1));
  }
}

TEST_CASE("bf16 is honoured under both of its names", "[stages]") {
  CHECK(of({"bf16.enabled=true"}).precision == Dtype::bf16);
  CHECK(of({"bfloat16.enabled=true"}).precision == Dtype::bf16);
  CHECK(of({"bf16.enabled=true"}).check_grad_overflow);
  CHECK_FALSE(of({"bf16.enabled=true", "bf16.check_grad_overflow=false"}).check_grad_overflow);
  CHECK_FALSE(of({"bfloat16.check_grad_overflow=false"}).check_grad_overflow);
  const auto both = load("", {"bf16.enabled=false", "bfloat16.enabled=true"});
  CHECK((both.ok() && both.config.precision == Dtype::f32));
  CHECK(says(both, "--set bfloat16.enabled: warning: bfloat16: has no effect beside \"bf16\""));
  CHECK(says(load("", {"bfloat16.enable=true"}),
             "--set bfloat16.enable: error: unknown key; did you mean \"enabled\"?"));
}

TEST_CASE("fp16 and bf16 together are refused", "[stages]") {
  const auto loaded = load(
      "{\"train_batch_size\": 4, \"fp16\": {\"enabled\": true},\n\"bf16\": {\n\"enabled\": true}}");
  CHECK(errors(loaded) == 1);
  CHECK(says(loaded, "ds.json:3: error: bf16.enabled: ", "fp16 is enabled too"));
  CHECK(load(R"({"train_batch_size": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}})")
            .ok());
}

TEST_CASE("keys that change the precision of master weights or moments are refused", "[stages]") {
  for (const char* key :
       {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states", "torch_autocast.enabled"}) {
    CAPTURE(key);
    CHECK(says(load("", {std::string(key) + "=true"}),
               std::string("--set ") + key + ": error: cannot be honoured: "));
    CHECK(load("", {std::string(key) + "=false"}).findings.empty());
  }
  CHECK(says(load("", {"fp16.auto_cast=true"}), "--set fp16.auto_cast: note: has no effect: "));
  CHECK(says(load("", {"bf16.immediate_grad_update=true"}),
             "--set bf16.immediate_grad_update: note: has no effect: "));
}

TEST_CASE("the types of communication and accumulation are honoured", "[stages]") {
  CHECK_FALSE(of({}).communication_data_type);
  CHECK(of({"communication_data_type=fp32"}).communication_data_type == Dtype::f32);
  CHECK(of({"communication_data_type=BF16"}).communication_data_type == Dtype::bf16);
  CHECK(of({"communication_data_type=fp16"}).communication_data_type == Dtype::f16);
  CHECK_FALSE(of({}).grad_accum_dtype);
  CHECK(of({"bf16.enabled=true", "data_types.grad_accum_dtype=fp32"}).grad_accum_dtype ==
        Dtype::f32);
  CHECK(of({"bf16.enabled=true", "data_types.grad_accum_dtype=bfloat16"}).grad_accum_dtype ==
        Dtype::bf16);
  CHECK(says(load("", {"bf16.enabled=true", "data_types.grad_accum_dtype=fp16"}),
             "--set data_types.grad_accum_dtype: error: fp16 is neither fp32 nor"));
  CHECK(says(load("", {"data_types.grad_accum_dtype=bf16"}),
             "--set data_types.grad_accum_dtype: error: ", "the type of this run's gradients"));
}

TEST_CASE("offload_optimizer is honoured for the device \"cpu\"", "[stages]") {
  const std::string at = "zero_optimization.offload_optimizer";
  CHECK(of({"zero_optimization.stage=2", at + "={}"}).offload_optimizer == OffloadDevice::none);
  CHECK(of({"zero_optimization.stage=2", at + ".device=none"}).offload_optimizer ==
        OffloadDevice::none);
  CHECK(of({"zero_optimization.stage=2", at + ".device=cpu"}).offload_optimizer ==
        OffloadDevice::cpu);
  const auto ddp = load("", {"zero_optimization.stage=0", at + ".device=cpu"});
  CHECK((ddp.ok() && ddp.config.offload_optimizer == OffloadDevice::cpu));
  CHECK(says(ddp, "--set ", "offload_optimizer: has an effect in stages 1 to 3"));
}

TEST_CASE("offload to nvme takes its folder, the size of a chunk and what overlaps", "[stages]") {
  const std::string at = "zero_optimization.offload_optimizer";
  CHECK(says(load("", {"zero_optimization.stage=2", at + ".device=nvme"}),
             "--set " + at + ".device: error: nvme needs nvme_path"));
  const auto disk =
      load("", {"zero_optimization.stage=2", at + ".device=nvme", at + ".nvme_path=/fast",
                "zero_optimization.sub_group_size=5000", at + ".pipeline_write=false"});
  REQUIRE(disk.ok());
  CHECK(disk.findings.empty());
  CHECK(disk.config.offload_optimizer == OffloadDevice::nvme);
  CHECK(disk.config.nvme_path == "/fast");
  CHECK(disk.config.swap == Swap{nullptr, 5000, true, false});
  const EngineOptions options = engine_options(disk.config);
  CHECK((options.nvme_path == "/fast" && options.swap == disk.config.swap));
  CHECK(of({}).swap == Swap{nullptr, 1 << 20, true, true});
  CHECK(load("", {"zerolab.defaults=deepspeed"}).config.swap ==
        Swap{nullptr, 1'000'000'000, false, false});
  for (const char* key : {".nvme_path=/fast", ".pipeline_read=true", ".pipeline_write=true"})
    CHECK(says(load("", {"zero_optimization.stage=2", at + ".device=cpu", at + key}), "--set " + at,
               "has no effect with device cpu"));
  CHECK(says(load("", {"zero_optimization.sub_group_size=5000"}),
             "--set zero_optimization.sub_group_size: note: has no effect"));
  CHECK_FALSE(load("", {"zero_optimization.sub_group_size=0"}).ok());
}

TEST_CASE("a ratio of offload is refused below stage 3, as in DeepSpeed", "[stages]") {
  const std::string at = "zero_optimization.offload_optimizer";
  const std::string ratio = at + R"(={"device": "cpu", "ratio": 0.5})";
  CHECK(says(load("", {"zero_optimization.stage=2", ratio}), "--set " + at,
             "needs stage 3, as in DeepSpeed"));
  CHECK_FALSE(load("", {"zero_optimization.stage=2", ratio}).ok());
  CHECK(load("", {"zero_optimization.stage=3", ratio}).ok());
  CHECK(says(load("", {"zero_optimization.stage=3", ratio}), "--set " + at,
             "has no effect yet: all of the optimizer state is offloaded"));
  CHECK(of({"zero_optimization.stage=2", at + R"(={"device": "cpu", "ratio": 1.0})"})
            .offload_optimizer == OffloadDevice::cpu);
}

TEST_CASE("the older names of offload are mapped, and refused beside the newer ones", "[stages]") {
  const auto old = load("", {"zero_optimization.stage=2", "zero_optimization.cpu_offload=true"});
  CHECK((old.ok() && old.config.offload_optimizer == OffloadDevice::cpu));
  CHECK(says(old,
             "--set zero_optimization.cpu_offload: warning: is deprecated: write "
             "\"offload_optimizer\": {\"device\": \"cpu\"}"));
  CHECK(load("", {"zero_optimization.stage=2", "zero_optimization.cpu_offload=false"})
            .config.offload_optimizer == OffloadDevice::none);
  CHECK(says(load("", {"zero_optimization.stage=2", "zero_optimization.cpu_offload=true",
                       "zero_optimization.offload_optimizer={}"}),
             "--set zero_optimization.cpu_offload: error: ",
             "offload_optimizer replaces it, and is given too"));
  CHECK(says(
      load("", {"zero_optimization.cpu_offload_param=true", "zero_optimization.offload_param={}"}),
      "--set zero_optimization.cpu_offload_param: error: ",
      "offload_param replaces it, and is given too"));
  const auto old_param =
      load("", {"zero_optimization.stage=3", "zero_optimization.cpu_offload_param=true"});
  CHECK((old_param.ok() && old_param.config.offload_param == OffloadDevice::cpu));
  CHECK(says(old_param,
             "--set zero_optimization.cpu_offload_param: warning: is deprecated: write "
             "\"offload_param\": {\"device\": \"cpu\"}"));
}

TEST_CASE("offload_param is honoured for the devices \"cpu\" and \"nvme\", in stage 3",
          "[stages]") {
  const std::string at = "zero_optimization.offload_param";
  const auto with = [&](const char* stage, const char* device) {
    return load("", {zl::str("zero_optimization.stage=", stage), zl::str(at, ".device=", device)});
  };
  CHECK(with("3", "cpu").config.offload_param == OffloadDevice::cpu);
  CHECK(with("3", "cpu").findings.empty());
  CHECK(with("3", "cpu").config.offload_optimizer == OffloadDevice::none);
  CHECK(with("3", "none").config.offload_param == OffloadDevice::none);
  CHECK(zl::engine_options(with("3", "cpu").config).offload_param == OffloadDevice::cpu);
  CHECK((with("2", "cpu").ok() && says(with("2", "cpu"), "--set " + at, "in stage 3 only")));
  CHECK((!with("3", "nvme").ok() &&
         says(with("3", "nvme"), "--set " + at + ".device: error: ", "nvme needs nvme_path")));
  const std::string nvme = R"(={"device": "nvme", "nvme_path": "/fast"})";
  const auto disk = load("", {"zero_optimization.stage=3", at + nvme});
  CHECK((disk.findings.empty() && disk.config.offload_param == OffloadDevice::nvme));
  CHECK(zl::engine_options(disk.config).nvme_path == "/fast");
  const std::string other = "zero_optimization.offload_optimizer" + nvme;
  CHECK(load("", {"zero_optimization.stage=3", at + nvme, other}).findings.empty());
  CHECK(says(load("", {"zero_optimization.stage=3", other, at + nvme, at + ".nvme_path=/slow"}),
             "--set " + at + ".nvme_path: error: ", "a rank makes one file"));
  const auto quantised = load("", {"zero_optimization.stage=3", at + ".device=cpu",
                                   "zero_optimization.zero_quantized_weights=true"});
  CHECK((!quantised.ok() && says(quantised, "--set " + at, "quantizes its parameter shard")));
  const auto preset = load("", {"zerolab.as=fsdp2", at + ".device=cpu"});
  CHECK((!preset.ok() && says(preset, "--set " + at, "is not imitated by fsdp2")));
}

TEST_CASE(
    "the scaling of gradients that a reduce-scatter cannot have is refused where DeepSpeed refuses "
    "it",
    "[stages]") {
  const auto zero2 = load("", {"zero_optimization.stage=2", "prescale_gradients=true"});
  CHECK(says(zero2, "--set prescale_gradients: error: ",
             "DeepSpeed refuses it in stages 2 and 3 with reduce_scatter"));
  CHECK(says(load("", {"zero_optimization.stage=3", "gradient_predivide_factor=2"}),
             "--set gradient_predivide_factor: error: ",
             "DeepSpeed refuses it in stages 2 and 3 with reduce_scatter"));
  CHECK(says(load("", {"zero_optimization.stage=1", "prescale_gradients=true"}),
             "--set prescale_gradients: note: has no effect: "));
  CHECK(load("", {"zero_optimization.stage=3", "prescale_gradients=false",
                  "gradient_predivide_factor=1.0"})
            .findings.empty());
  CHECK(says(load("", {"gradient_allreduce_op=sum"}),
             "--set gradient_allreduce_op: error: cannot be honoured: "));
  CHECK(load("", {"gradient_allreduce_op=mean"}).findings.empty());
}

TEST_CASE("the keys of reports are honoured", "[stages]") {
  const Config none = of({});
  CHECK((!none.steps_per_print && !none.wall_clock_breakdown && !none.comms_logger.enabled &&
         !none.csv_monitor.enabled));
  CHECK(of({"steps_per_print=10"}).steps_per_print == 10);
  CHECK(of({"wall_clock_breakdown=true"}).wall_clock_breakdown);
  const Config logged = of({R"(comms_logger={"enabled": true, "verbose": true, "prof_all": false, )"
                            R"("prof_ops": ["all_reduce"], "debug": true})"});
  CHECK((logged.comms_logger.enabled && logged.comms_logger.verbose &&
         !logged.comms_logger.prof_all && logged.comms_logger.debug));
  CHECK(logged.comms_logger.prof_ops == std::vector<std::string>{"all_reduce"});
  CHECK(says(
      load("", {R"(comms_logger={"enabled": true, "prof_ops": ["all_reduce"]})"}),
      "--set comms_logger: note: comms_logger.prof_ops: has no effect while prof_all is true"));
  CHECK(says(load("", {"comms_logger.prof_ops=all_reduce"}),
             "--set comms_logger.prof_ops: error: ", "expected an array of strings"));
  const Config csv =
      of({R"(csv_monitor={"enabled": true, "output_path": "", "job_name": "first"})"});
  CHECK((csv.csv_monitor.enabled && csv.csv_monitor.output_path.empty() &&
         csv.csv_monitor.job_name == "first"));
  CHECK(none.csv_monitor.job_name == "DeepSpeedJobName");
  const Config board = of({R"(tensorboard={"enabled": true, "output_path": "a"})"});
  CHECK((board.tensorboard.enabled && board.tensorboard.output_path == "a" &&
         board.tensorboard.job_name == "DeepSpeedJobName"));
  CHECK((!none.tensorboard.enabled && !board.csv_monitor.enabled));
}

TEST_CASE("a key that DeepSpeed refuses is an error where it is on, a warning where it is off",
          "[stages]") {
  CHECK(says(load("", {"amp.enabled=true"}), "--set amp",
             "error: amp: DeepSpeed 0.19.8 refuses a file with this key; leave it out: DeepSpeed "
             "removed Apex AMP"));
  const auto off = load("", {"amp.enabled=auto"});
  CHECK((off.ok() && off.findings.size() == 1));
  for (const char* key :
       {"sparse_gradients", "zero_optimization.grad_hooks", "zero_optimization.legacy_stage1"}) {
    CAPTURE(key);
    CHECK(says(load("", {std::string(key) + "=true"}), std::string("--set ") + key,
               "error: DeepSpeed 0.19.8 refuses"));
    CHECK(says(load("", {std::string(key) + "=false"}),
               std::string("--set ") + key + ": warning: DeepSpeed 0.19.8 refuses"));
  }
  CHECK(says(load("", {"zero_optimization.mics_shard_size=-1"}),
             "--set zero_optimization.mics_shard_size: warning: DeepSpeed 0.19.8 refuses"));
}
