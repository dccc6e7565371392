// The bytes of a checkpoint depend on the state alone, not on the stage or the ranks that save it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/verify.h"
#include "tensor/io/safetensors.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("stages that have the same bits save the same bytes", "[stages]") {
  const ScratchFolder scratch;
  const int ranks = GENERATE(1, 2, 3, 4);
  const Dtype precision = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  CAPTURE(ranks, name(precision));
  std::map<StageKind, DataFiles> one, two;  // micro-batches per step
  for (const StageKind stage : kStages) {
    GptTrainingSpec spec = checkpoint_spec("", stage, ranks);
    spec.engine.precision = precision;
    one[stage] = data_files(trained(scratch, spec));
    spec.engine.accumulation = 2;
    two[stage] = data_files(trained(scratch, spec));
  }
  REQUIRE(one[StageKind::ddp].size() == 3);
  for (const StageKind stage : kStages) CHECK(one[stage] == one[StageKind::ddp]);
  CHECK(two[StageKind::zero1] == two[StageKind::ddp]);
  CHECK(two[StageKind::zero3] == two[StageKind::zero2]);
  CHECK(two[StageKind::ddp] != one[StageKind::ddp]);
}

TEST_CASE("load and save give the same bytes for every pair of stages and numbers of ranks",
          "[stages][seeds]") {
  const ScratchFolder scratch;
  const std::string origin = trained(scratch, checkpoint_spec("", StageKind::ddp, 3));
  const DataFiles expected = data_files(origin);
  std::vector<TrainingSpec> specs;
  for (const StageKind stage : kStages)
    for (const int ranks : {1, 2, 3, 4, 8}) {
      specs.push_back(checkpoint_spec("", stage, ranks));
      // Master weights in 16-bit training are fp32, so nothing is lost.
      if (ranks % 2 == 0) specs.back().engine.precision = Dtype::bf16;
      if (stage == StageKind::zero3 && ranks % 4 != 0)  // shards of parameters on the host
        specs.back().engine.offload_param = OffloadDevice::cpu;
    }
  specs.push_back(checkpoint_spec("", StageKind::zero3, 12));
  int pairs = 0;
  for (const TrainingSpec& a : specs) {
    const std::string from = load_and_save(a, origin, scratch.path("a"));
    for (const TrainingSpec& b : specs) {
      const std::string to = load_and_save(b, from, scratch.path("b"));
      CAPTURE(name(a.engine.stage), a.ranks, name(b.engine.stage), b.ranks);
      REQUIRE(data_files(to) == expected);
      ++pairs;
      std::filesystem::remove_all(to);
    }
    std::filesystem::remove_all(from);
  }
  CHECK(pairs == 441);
}

TEST_CASE("a model.safetensors of a checkpoint has the run's weights, and verify accepts it",
          "[stages]") {
  const ScratchFolder scratch;
  const GptTrainingSpec spec = checkpoint_spec(scratch.path("a"), StageKind::zero3, 3);
  const Bits bits = train_bits(spec);
  const std::string folder = checkpoint_path(scratch.path("a"), 3);
  CHECK(verify_checkpoint(folder).empty());
  const SafetensorsFile file(folder + "/model.safetensors");
  std::vector<float> weights;
  for (const SafetensorsEntry& entry : file.entries())
    for (const float value : file.read_floats(entry.name)) weights.push_back(value);
  CHECK(weights == bits.weights);
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"n_head", "3"}});
}
