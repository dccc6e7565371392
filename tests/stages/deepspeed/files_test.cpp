// The files in configs/ have the keys that real files use most. All of them load. Those of the two
// articles behind this project are trained in tests/zerolab/precision_test.cpp.

#include <filesystem>
#include <set>

#include "tests/paths.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::says;
using zl::Dtype, zl::OffloadDevice, zl::StageKind;

namespace {

const std::string kFolder = std::string(ZEROLAB_SOURCE_DIR) + "/tests/stages/deepspeed/configs/";

zl::LoadedConfig load_file(const std::string& name, const std::vector<std::string>& sets = {}) {
  zl::LoadedConfig loaded = zl::load_config({kFolder + name + ".json", sets, 4});
  for (zl::ConfigFinding& f : loaded.findings)
    if (f.where.starts_with(kFolder)) f.where.erase(0, kFolder.size());
  return loaded;
}

struct Expected {
  const char* name;
  std::optional<StageKind> stage;
  Dtype precision;
  bool offload;
  int64_t micro_batch, accumulation;
  int findings;
  int errors = 0;
};

constexpr Expected kFiles[] = {
    {"trainer_stage3_auto", StageKind::zero3, Dtype::bf16, true, 4, 1, 4},
    {"bf16_stage3", StageKind("zero3_qwz"), Dtype::bf16, false, 2, 8, 3, 2},  // ZeRO++
    {"disk", StageKind::zero3, Dtype::f32, false, 2, 1, 5},
    {"monitored", StageKind::zero2, Dtype::f32, false, 1, 1, 6},
    {"ours", StageKind::zero3, Dtype::f32, true, 4, 1, 1},
};

}  // namespace

TEST_CASE("real configurations load, and keys without effect have a finding", "[stages]") {
  std::set<std::string> names, files;
  for (const Expected& expected : kFiles) {
    const auto loaded = load_file(expected.name);
    INFO(expected.name << "\n" << config_case::joined(loaded));
    CHECK(errors(loaded) == expected.errors);
    CHECK(loaded.config.stage == expected.stage);
    CHECK(loaded.config.precision == expected.precision);
    CHECK((loaded.config.offload_optimizer == OffloadDevice::cpu) == expected.offload);
    CHECK(loaded.config.micro_batch == expected.micro_batch);
    CHECK(loaded.config.accumulation == expected.accumulation);
    CHECK(int(loaded.findings.size()) == expected.findings);
    names.insert(std::string(expected.name) + ".json");
    const auto misspelt = load_file(expected.name, {"zero_optimization.overlap_com=true"});
    CHECK(errors(misspelt) == expected.errors + 1);
    CHECK(says(
        misspelt,
        "--set zero_optimization.overlap_com: error: unknown key; did you mean \"overlap_comm\"?"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    files.insert(entry.path().filename().string());
  CHECK(names == files);
}

TEST_CASE("\"auto\" takes the settings of others, and a block keeps its own numbers", "[stages]") {
  const auto loaded = load_file("trainer_stage3_auto", {"zerolab.steps=50"});
  CHECK(loaded.config.schedule.total_num_steps == 50);
  CHECK(loaded.config.schedule.warmup_num_steps == 20);
  CHECK((loaded.config.optimizer.lr == 1e-3 && loaded.config.schedule.warmup_max_lr == 1e-3));
  CHECK(loaded.config.reduce_bucket_size == 1);
  CHECK(loaded.config.overlap == zl::Overlap{.overlap_comm = true,
                                             .prefetch_bucket_size = 0,
                                             .max_live_parameters = 1'000'000'000,
                                             .max_reuse_distance = 1'000'000'000});
  CHECK(loaded.automatic.at("train_batch_size").ends_with("trainer_stage3_auto.json:28"));
}
