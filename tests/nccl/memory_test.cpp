// What compare says of memory where NCCL moves the data: sums in rank order need scratch, and every
// byte of it is predicted.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

const Windows& windows() {
  static const std::string text = [] {
    std::string all;
    for (int i = 0; i < 4000; ++i) all += char('a' + i * i % 23);
    return all;
  }();
  static const Windows all(TokenData::of_text("text", text), 9);
  return all;
}

GptTrainingSpec small_run(int ranks) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 3, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.steps = 2;
  spec.micro_batch = 2;
  spec.ranks = ranks;
  spec.data = &windows();
  spec.poison = true;
  return spec;
}

// All four stages through the fake, whatever `spec` says that they go through. Throws if NCCL was
// misused.
Comparison compared(TrainingSpec spec) {
  Comparison comparison;
  const FakeUse use = with_fake({.ordered = spec.ordered_sums}, [&](const RunRanks& start) {
    spec.run_ranks = start;
    comparison = compare_stages(spec, {std::begin(kStages), std::end(kStages)});
  });
  if (!use.misuse.empty()) throw std::logic_error(use.misuse);
  return comparison;
}

// Which uses are not as predicted, on whatever rank.
std::set<MemoryUse> off(const StageOutcome& stage) {
  std::set<MemoryUse> uses;
  for (const MemoryRow& row : stage.memory)
    if (!row.exact()) uses.insert(row.use);
  return uses;
}

constexpr int64_t kTwoBlocks = 3000,
                  kAll = int64_t(1) << 40;  // [n] a block has 1,992 elements and padding

}  // namespace

TEST_CASE(
    "through NCCL gradients that are accumulated or communicated in another type take the "
    "predicted memory",
    "[nccl]") {
  const auto sent = GENERATE(Dtype::bf16, Dtype::f16, Dtype::f32);
  GptTrainingSpec spec = small_run(sent == Dtype::f16 ? 2 : 3);
  spec.transport = Transport::nccl;
  spec.engine.precision = Dtype::bf16;
  spec.engine.grad_accum_dtype = Dtype::f32;
  spec.engine.communication_data_type = sent;
  spec.engine.offload_optimizer = OffloadDevice::cpu;
  spec.engine.reduce_bucket_size = kTwoBlocks;
  const Comparison comparison = compared(spec);
  for (const StageOutcome& stage : comparison.stages) {
    CAPTURE(name(sent), name(stage.stage));
    CHECK(off(stage).empty());
    CHECK(stage.peak_total == stage.predicted_peak_total);
    CHECK(stage.bitwise_equal);
  }
  CHECK(comparison.bits_promised);
  CHECK(comparison.ok());
}

TEST_CASE(
    "a prediction for threads is not taken for one for NCCL: it lacks the scratch and nothing else",
    "[nccl]") {
  const TrainingSpec spec = small_run(3);  // on threads
  const Comparison comparison = compared(spec);
  for (const StageOutcome& stage : comparison.stages) {
    CAPTURE(name(stage.stage));
    CHECK(off(stage) == std::set{MemoryUse::communication});
    CHECK(stage.bitwise_equal);
  }
  CHECK_FALSE(comparison.ok());
  TrainingSpec threads = spec;
  threads.transport = Transport::nccl;
  CHECK_FALSE(compare_stages(threads, {StageKind::zero2}).ok());
  threads.transport = Transport::threads;
  CHECK(compare_stages(threads, {StageKind::zero2}).ok());
}

TEST_CASE("where NCCL adds as it likes there is no scratch, and no bit is demanded", "[nccl]") {
  GptTrainingSpec spec = small_run(3);
  spec.transport = Transport::nccl;
  spec.ordered_sums = false;
  Comparison comparison = compared(spec);
  CHECK_FALSE(comparison.bits_promised);
  CHECK(comparison.ok());
  for (const StageOutcome& stage : comparison.stages) CHECK(off(stage).empty());
  comparison.stages[1].bitwise_equal = false;
  CHECK(comparison.ok());
  comparison.bits_promised = true;
  CHECK_FALSE(comparison.ok());
  comparison.bits_promised = false;
  comparison.stages[1].peak_total[0] += 1;
  CHECK_FALSE(comparison.ok());
}

TEST_CASE("a plan for NCCL has the scratch of the largest bucket: (N-1)/N of its elements",
          "[nccl]") {
  GptTrainingSpec spec = small_run(3);
  spec.engine.reduce_bucket_size = kAll;
  const auto communication = [&](Transport transport, bool ordered) {
    spec.transport = transport;
    spec.ordered_sums = ordered;
    for (const MemoryRow& row : plan_stage(spec, StageKind::zero2, 1).memory)
      if (row.use == MemoryUse::communication) {
        CHECK(row.exact());  // the dry run and the formula
        return row.predicted_peak;
      }
    return int64_t(-1);
  };
  Gpt model(spec.model);
  int64_t elements = 0;
  for (const int64_t unit : padded_unit_sizes(model.units(), 3)) elements += unit;
  CHECK(communication(Transport::nccl, true) == elements / 3 * 2 * 4);
  CHECK(communication(Transport::threads, true) == 3 * 8);
  CHECK(communication(Transport::nccl, false) == 3 * 8);
}
