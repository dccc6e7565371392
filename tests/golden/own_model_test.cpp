// A model that is no GPT, on this process's threads: recorded runs whose program is "in_process".
//
// Their command is the stage, then words of: bf16 fp16 (precision), ranks=3, micro_batches=3,
// bucket=100 (of both kinds), clip=0.1, scale=64 (of the loss), seed=8, offload, master (a separate
// copy), fp32_sums, fp32_traffic, recompute, twice (a block runs twice), gpu (the emulated one).
#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "tests/golden/record.h"
#include "tests/golden/run.h"
#include "tests/stages/stage_run.h"

namespace golden {
namespace {

using namespace zl;
using zl::test::StageRun;
using zl::test::StageRunSpec;

void set_number(StageRunSpec& spec, const std::string& word) {
  const size_t equals = word.find('=');
  REQUIRE(equals != std::string::npos);
  const std::string key = word.substr(0, equals);
  const double value = std::stod(word.substr(equals + 1));
  if (key == "ranks") {
    spec.ranks = int(value);
  } else if (key == "micro_batches") {
    spec.micro_batches = int(value);
  } else if (key == "bucket") {
    spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = int64_t(value);
  } else if (key == "clip") {
    spec.max_norm = value;
  } else if (key == "scale") {
    spec.scale = value;
  } else {
    REQUIRE(key == "seed");
    spec.data_seed = uint64_t(value);
  }
}

void set_word(StageRunSpec& spec, const std::string& word) {
  StageOptions& o = spec.options;
  if (word == "bf16") {
    o.dtype = Dtype::bf16;
  } else if (word == "fp16") {
    o.dtype = Dtype::f16;
  } else if (word == "fp32_sums") {
    o.gradient_dtype = Dtype::f32;
  } else if (word == "fp32_traffic") {
    o.communication_dtype = Dtype::f32;
  } else if (word == "master") {
    o.optimizer.separate_master = true;
  } else if (word == "offload") {
    spec.offload = true;
  } else if (word == "recompute") {
    spec.model.recompute = Recompute::full;
  } else if (word == "twice") {
    spec.model.block_twice = true;
  } else if (word == "gpu") {
    spec.backends = [](int) {
      return RankBackends{zl::cuda_on_cpu::make_gpu_backend(0),
                          zl::cuda_on_cpu::make_pinned_backend()};
    };
  } else {
    set_number(spec, word);
  }
}

StageRunSpec read(const std::string& command) {
  std::istringstream words(command);
  std::string word;
  words >> word;
  StageRunSpec spec{.model = {.unused_parameter = true}};
  // Never a real GPU, whatever ZEROLAB_TEST_GPU says.
  spec.backends = [](int) { return RankBackends{}; };
  for (const StageKind stage : kStages)
    if (word == name(stage)) spec.stage = stage;
  while (words >> word) set_word(spec, word);
  return spec;
}

template <class T>
std::string series(const std::vector<T>& values) {
  std::string text;
  for (const T value : values) text += exactly(double(value)) + " ";
  return hash(text) + ", " + std::to_string(values.size()) + " with last " +
         exactly(double(values.back()));
}

void add_memory(const std::vector<MemoryLedger>& ledgers, const std::string& pool, Quantities& to) {
  std::vector<int64_t> total;
  for (int i = 0; i < kMemoryUses; ++i) {
    std::vector<int64_t> rest, peak;
    for (const MemoryLedger& ledger : ledgers) {
      rest.push_back(ledger.live(MemoryUse(i)));
      peak.push_back(ledger.peak(MemoryUse(i)));
    }
    to["memory " + pool + " " + name(MemoryUse(i))] =
        "rest " + of_ranks(rest) + ", peak " + of_ranks(peak);
  }
  for (const MemoryLedger& ledger : ledgers) total.push_back(ledger.peak_total());
  to["memory " + pool + " peak"] = of_ranks(total);
}

Quantities measure_in_process(const std::string& command) {
  const StageRunSpec spec = read(command);
  const StageRun run = zl::test::run_stage(spec);
  Quantities found{{"loss", series(run.losses)},
                   {"grad_norm", series(run.norms)},
                   {"weights", series(run.weights)},
                   {"master", series(run.master)}};
  add_memory(run.ledgers, "device", found);
  if (spec.offload) add_memory(run.host_ledgers, "host", found);
  for (const auto& [key, traffic] : run.logs.at(0).rows())
    found["traffic " + std::string(name(key.collective)) + " " + name(key.purpose)] =
        "calls " + std::to_string(traffic.calls) + ", elements " +
        std::to_string(traffic.elements) + ", sent x ranks " +
        std::to_string(traffic.sent_bytes_times_n);
  return found;
}

}  // namespace

TEST_CASE("runs of an own model give what was recorded", "[golden]") {
  if (const std::string why = other_bits_expected(); !why.empty()) SKIP(why);
  check_or_record({"in_process"},
                  [](const Record& record) { return measure_in_process(record.command); });
}

TEST_CASE("an own model with other data or another stage gives other quantities", "[golden]") {
  const Quantities zero2 = measure_in_process("zero2 bf16 ranks=3");
  CHECK(differences(zero2, measure_in_process("zero2 bf16 ranks=3")).empty());
  Quantities other = measure_in_process("zero2 bf16 ranks=3 seed=8");
  for (const char* what : {"loss", "grad_norm", "weights", "master"}) {
    CAPTURE(what);
    CHECK(other.at(what) != zero2.at(what));
    other[what] = zero2.at(what);
  }
  CHECK(differences(zero2, other).empty());
  const Quantities zero3 = measure_in_process("zero3 bf16 ranks=3");
  CHECK(zero3.at("loss") == zero2.at("loss"));
  const char* parameter = "memory device parameter";
  CHECK(zero3.at(parameter) != zero2.at(parameter));
  CHECK(zero3.at("traffic all_gather parameter") != zero2.at("traffic all_gather parameter"));
}

}  // namespace golden
