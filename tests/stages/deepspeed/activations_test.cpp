// The block activation_checkpointing, and replicated_micro_batches.

#include <catch2/catch_test_macros.hpp>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::load, config_case::says;
using zl::Config, zl::Recompute;

TEST_CASE("each key of activation_checkpointing switches it on, without a change of the model",
          "[stages]") {
  const auto of = [](const std::vector<std::string>& sets) {
    const auto loaded = load("", sets);
    INFO(config_case::joined(loaded));
    CHECK(loaded.findings.empty());
    return loaded.config;
  };
  CHECK(of({}).recompute == Recompute::selective);
  CHECK(of({"activation_checkpointing.cpu_checkpointing=false"}).recompute == Recompute::selective);
  const Config host = of({"activation_checkpointing.cpu_checkpointing=true"});
  CHECK((host.recompute == Recompute::full && host.cpu_checkpointing && host.checkpoints == 0));
  const Config two = of({"activation_checkpointing.number_checkpoints=2"});
  CHECK((two.recompute == Recompute::full && two.checkpoints == 2 && !two.cpu_checkpointing));
  const Config parts = of({"activation_checkpointing.partition_activations=true",
                           "zerolab.replicated_micro_batches=true", "zerolab.recompute=full"});
  CHECK((parts.recompute == Recompute::full && parts.partition_activations));
  const zl::EngineOptions options = zl::engine_options(parts);
  CHECK((options.partition_activations && options.replicated_micro_batches &&
         !options.cpu_checkpointing));
  CHECK(zl::engine_options(host).cpu_checkpointing);
}

TEST_CASE("keys of activation_checkpointing that contradict the run are errors", "[stages]") {
  const auto none =
      load("", {"activation_checkpointing.number_checkpoints=2", "zerolab.recompute=none"});
  CHECK(errors(none) == 1);
  CHECK(says(none,
             "--set activation_checkpointing.number_checkpoints: error: needs activation "
             "checkpointing, but zerolab.recompute is \"none\""));
  CHECK_FALSE(load("", {"activation_checkpointing.number_checkpoints=0"}).ok());
  const std::vector<std::string> partition{"activation_checkpointing.partition_activations=true"};
  const auto parallel = load("", partition, 4);
  CHECK(errors(parallel) == 1);
  CHECK(says(parallel,
             "--set activation_checkpointing.partition_activations: error: activations cannot be "
             "partitioned: the 4 ranks read different micro-batches"));
  CHECK(load("", partition, 1).ok());
  const auto ordered =
      load("", {"zerolab.replicated_micro_batches=true", "zerolab.reproducible=true"}, 4);
  CHECK(errors(ordered) == 1);
  CHECK(says(ordered,
             "--set zerolab.replicated_micro_batches: error: replicated micro-batches "
             "have no reproducible sums"));
}

TEST_CASE("the other keys of activation_checkpointing have a note, and false has none",
          "[stages]") {
  for (const char* key :
       {"contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"}) {
    const std::string set = zl::str("activation_checkpointing.", key, "=");
    const auto on = load("", {set + "true"});
    CAPTURE(key);
    CHECK((on.ok() && on.findings.size() == 1));
    CHECK(on.config.recompute == Recompute::selective);
    CHECK(says(on, zl::str("--set activation_checkpointing.", key, ": note: has no effect")));
    CHECK(load("", {set + "false"}).findings.empty());
  }
}

TEST_CASE("replicated micro-batches count once in the batch", "[stages]") {
  const std::vector<std::string> sets{"train_batch_size=12", "train_micro_batch_size_per_gpu=3"};
  CHECK(load("", sets, 2).config.accumulation == 2);
  std::vector<std::string> replicated = sets;
  replicated.push_back("zerolab.replicated_micro_batches=true");
  CHECK(load("", replicated, 2).config.accumulation == 4);
}
