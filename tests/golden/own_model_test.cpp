// A model that is no GPT, on this process's threads: frozen runs whose program is "in_process".
// Their next word is the stage; kWords has the others.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/golden/runs.h"
#include "tests/stages/stage_run.h"

namespace golden {
namespace {

using namespace zl;
using zl::test::StageRun;
using zl::test::StageRunSpec;
using Json = nlohmann::ordered_json;

RankBackends emulated_gpu(int) {
  return {zl::cuda_on_cpu::make_gpu_backend(0), zl::cuda_on_cpu::make_pinned_backend()};
}

// A word, and what it sets: v is the number after its "=".
using Set = std::function<void(StageRunSpec&, double v)>;
const std::map<std::string, Set> kWords = {
    {"bf16", [](auto& s, double) { s.options.precision = Dtype::bf16; }},
    {"fp16", [](auto& s, double) { s.options.precision = Dtype::f16; }},
    {"fp32_sums", [](auto& s, double) { s.options.grad_accum_dtype = Dtype::f32; }},
    {"fp32_traffic", [](auto& s, double) { s.options.communication_data_type = Dtype::f32; }},
    {"master", [](auto& s, double) { s.options.optimizer.separate_master = true; }},
    {"offload", [](auto& s, double) { s.offload = true; }},
    {"recompute", [](auto& s, double) { s.model.recompute = Recompute::full; }},
    {"twice", [](auto& s, double) { s.model.block_twice = true; }},
    {"gpu", [](auto& s, double) { s.backends = emulated_gpu; }},
    {"ranks", [](auto& s, double v) { s.ranks = int(v); }},
    {"micro_batches", [](auto& s, double v) { s.micro_batches = int(v); }},
    {"bucket",
     [](auto& s, double v) {
       s.options.reduce_bucket_size = s.options.allgather_bucket_size = int64_t(v);
     }},
    {"clip", [](auto& s, double v) { s.max_norm = v; }},
    {"scale", [](auto& s, double v) { s.scale = v; }},
    {"seed", [](auto& s, double v) { s.data_seed = uint64_t(v); }},
};

StageRunSpec read(const std::string& command) {
  std::istringstream words(command);
  std::string word;
  words >> word >> word;
  StageRunSpec spec{.model = {.unused_parameter = true}};
  // Never a real GPU, whatever ZEROLAB_TEST_GPU says.
  spec.backends = [](int) { return RankBackends{}; };
  for (const StageKind stage : kStages)
    if (word == name(stage)) spec.stage = stage;
  while (words >> word) {
    const size_t equals = word.find('=');
    kWords.at(word.substr(0, equals))(
        spec, equals < word.size() ? std::stod(word.substr(equals + 1)) : 0);
  }
  return spec;
}

std::string bits(const std::vector<float>& values) {
  return hash(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
}

// By rank, and in a rank by use.
Json memory(const std::vector<MemoryLedger>& ledgers) {
  Json all = Json::array();
  for (const MemoryLedger& ledger : ledgers) {
    Json uses;
    for (int i = 0; i < kMemoryUses; ++i)
      uses[name(MemoryUse(i))] = {{"rest_bytes", ledger.live(MemoryUse(i))},
                                  {"peak_bytes", ledger.peak(MemoryUse(i))}};
    all.push_back(uses);
  }
  return all;
}

Result in_process(const std::string& command) {
  const StageRunSpec spec = read(command);
  const StageRun run = zl::test::run_stage(spec);
  Json document{{"loss", run.losses},
                {"grad_norm", run.norms},
                {"weights", bits(run.weights)},
                {"master", bits(run.master)},
                {"memory", memory(run.ledgers)},
                {"host memory", memory(run.host_ledgers)},
                {"peak_total_bytes", Json::array()},
                {"communication", Json::array()}};
  for (const auto* ledgers : {&run.ledgers, &run.host_ledgers})
    for (const MemoryLedger& ledger : *ledgers)
      document["peak_total_bytes"].push_back(ledger.peak_total());
  for (const auto& [key, traffic] : run.logs.at(0).rows())
    document["communication"].push_back(
        {{"collective", name(key.collective)},
         {"purpose", name(key.purpose)},
         {"calls", traffic.calls},
         {"elements", traffic.elements},
         {"sent_bytes_times_n", traffic.sent_bytes_times_n},
         {"sent_bytes_per_rank", traffic.sent_bytes_times_n / spec.ranks}});
  return result(document.dump());
}

}  // namespace

TEST_CASE("frozen runs of an own model give what was recorded", "[golden]") {
  check_or_record(true, [](const Run& run) { return in_process(run.command); });
}

TEST_CASE("an own model with other data or another stage gives other quantities", "[golden]") {
  const Items zero2 = in_process("in_process zero2 bf16 ranks=3").items;
  CHECK(zero2 == in_process("in_process zero2 bf16 ranks=3").items);
  Items other = in_process("in_process zero2 bf16 ranks=3 seed=8").items;
  for (const char* what : {"loss[3]", "grad_norm[3]", "weights", "master"}) {
    CAPTURE(what);
    CHECK(other.at(what) != zero2.at(what));
  }
  for (auto& [what, value] : other)
    if (!what.starts_with("memory") && !what.starts_with("communication")) value = zero2.at(what);
  CHECK(zero2 == other);
  const Items zero3 = in_process("in_process zero3 bf16 ranks=3").items;
  CHECK(zero3.at("loss[3]") == zero2.at("loss[3]"));
  CHECK(zero3.at("memory[0].parameter.rest_bytes") != zero2.at("memory[0].parameter.rest_bytes"));
  CHECK(zero3.at("communication[1].collective") == "\"all_gather\"");
  CHECK(zero3.at("communication[1].purpose") == "\"parameter\"");
  CHECK(zero3.at("communication[1].calls") != zero2.at("communication[1].calls"));
}

}  // namespace golden
