// The times of kernels on a GPU, which `bench kernels` prints: which calls they are of, and
// that the host does not wait for them.
#include "tutorials/zerolab/bench/timed_backend.h"

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "nn/data/corpus.h"
#include "nn/data/windows.h"
#include "nn/gpt.h"
#include "stages/train/gpt_spec.h"
#include "tensor/kernels.h"
#include "tests/device.h"

using namespace zl;
using namespace zl::test;
using cli::TimedBackend;
using cli::TimedBy;
using cli::TimedKernel;
using cli::TimedStep;

namespace {

// Trains with ddp on one rank, with 2 sequences of 8 bytes.
std::vector<TimedStep> train(int64_t layers) {
  GptTrainingSpec spec =
      gpt_spec({.layers = layers, .heads = 2, .width = 16, .block_size = 8, .vocab = 128});
  const Windows data(TokenData::of_text("text", std::string(default_corpus())), 8);
  spec.data = &data;
  spec.micro_batch = 2;
  spec.ranks = 1;
  spec.steps = 3;
  spec.device = DeviceKind::cuda;
  spec.backends = on_test_gpus();
  return time_kernels(spec, TimedBy::device, 0);
}

std::map<std::string, int64_t> counts(const std::vector<TimedKernel>& calls) {
  std::map<std::string, int64_t> counts;
  for (const TimedKernel& call : calls) {
    ++counts[call.name];
    if (call.name.starts_with("matmul ")) ++counts["matmuls"];
  }
  return counts;
}

}  // namespace

TEST_CASE("each kernel of a step on a GPU is timed, and together they take no longer than the step",
          "[cuda]") {
  require_gpu();
  const auto steps = train(2), one_layer = train(1);
  REQUIRE(steps.size() == 3);
  for (size_t step = 0; step < 3; ++step) {
    CAPTURE(step);
    auto calls = counts(steps[step].calls);
    // Four matmuls of each block and the head's, in forward and for two gradients each.
    CHECK(calls["matmuls"] == 3 * (4 * 2 + 1));
    CHECK(calls["matmul A·B 16×48×16"] == 2);    // queries, keys and values
    CHECK(calls["matmul A·Bᵀ 16×128×16"] == 1);  // the head
    CHECK(calls["attention"] == 2);
    CHECK(calls["attention_backward"] == 2);
    CHECK(calls["gelu_backward"] == 2);
    CHECK(calls["layer_norm_backward"] == 2 * 2 + 1);
    CHECK(calls["embedding_backward"] == 1);
    CHECK(calls["cross_entropy_backward"] == 1);
    CHECK(calls["ordered_sum"] >= 3);  // of each unit's gradient
    double sum = 0, of_matmuls = 0;
    for (const TimedKernel& call : steps[step].calls) {
      CHECK(call.seconds >= 0);
      sum += call.seconds;
      if (call.event == "matmul") of_matmuls += call.seconds;
    }
    CHECK(of_matmuls > 0);
    CHECK(sum > of_matmuls);
    CHECK(sum <= steps[step].seconds);
    CHECK(counts(one_layer[step].calls)["matmuls"] == 3 * (4 * 1 + 1));  // the twin
  }
}

TEST_CASE("the host does not wait for a kernel that is timed on a GPU", "[cuda]") {
  require_gpu();
  TimedBackend timed(gpu_of_rank(0));
  EventStream events;
  Memory memory({DeviceKind::cuda}, timed, events);
  const Tensor t = Tensor::zeros(memory, MemoryUse::activation, {1 << 16});
  timed.synchronize();
  timed.begin();
  kernel::fill(3, t);
  const auto event = timed.record_event(Stream::compute);
  if (!real_gpu()) CHECK_FALSE(timed.event_done(event.get()));  // a real one may be quick enough
  CHECK(timed.host_waits() == 1);                               // synchronize()
  REQUIRE(timed.calls().size() == 1);
  CHECK(timed.calls()[0].seconds > 0);
}

TEST_CASE("what moves between ranks is timed in the stream that moves it", "[cuda]") {
  require_gpu();
  TimedBackend timed(gpu_of_rank(0));
  EventStream events;
  Memory memory({DeviceKind::cuda}, timed, events);
  const int64_t bytes = int64_t(64) << 20;
  const Tensor from = Tensor::zeros(memory, MemoryUse::communication, {bytes / 4}),
               to = Tensor::zeros(memory, MemoryUse::communication, {bytes / 4});
  timed.synchronize();
  timed.move_bytes(from.address(), to.address(), bytes);  // the first may take longer
  timed.begin();
  for (const int64_t n : {int64_t(64), bytes}) timed.move_bytes(from.address(), to.address(), n);
  REQUIRE(timed.calls().size() == 2);
  CHECK(timed.calls()[1].seconds > 4 * timed.calls()[0].seconds);
}
