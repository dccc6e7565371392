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
using cli::KernelSeconds;
using cli::TimedBackend;
using cli::TimedSteps;

namespace {

// Trains with ddp on one rank, with 2 sequences of 8 bytes.
TimedSteps train(int64_t layers) {
  GptTrainingSpec spec =
      gpt_spec({.layers = layers, .heads = 2, .width = 16, .block_size = 8, .vocab = 128});
  const Windows data(TokenData::of_text("text", std::string(default_corpus())), 8);
  spec.data = &data;
  spec.micro_batch = 2;
  spec.ranks = 1;
  spec.steps = 3;
  spec.device = DeviceKind::cuda;
  spec.backends = on_test_gpus();
  return cli::time_kernels(spec, 0);
}

std::map<std::string, size_t> counts(const KernelSeconds& calls) {
  std::map<std::string, size_t> counts;
  for (const auto& [kernel, seconds] : calls) {
    counts[kernel.name] += seconds.size();
    if (kernel.name.starts_with("matmul ")) counts["matmuls"] += seconds.size();
  }
  return counts;
}

}  // namespace

TEST_CASE("each kernel of a step on a GPU is timed, and together they take no longer than the step",
          "[cuda]") {
  require_gpu();
  const TimedSteps steps = train(2);
  REQUIRE(steps.seconds.size() == 3);
  auto calls = counts(steps.calls);
  // Four matmuls of each block and the head's, in forward and for two gradients each.
  CHECK(calls["matmuls"] == 3 * 3 * (4 * 2 + 1));
  CHECK(calls["matmul A·B 16×48×16"] == 3 * 2);    // queries, keys and values
  CHECK(calls["matmul A·Bᵀ 16×128×16"] == 3 * 1);  // the head
  CHECK(calls["attention"] == 3 * 2);
  CHECK(calls["attention_backward"] == 3 * 2);
  CHECK(calls["gelu_backward"] == 3 * 2);
  CHECK(calls["layer_norm_backward"] == 3 * (2 * 2 + 1));
  CHECK(calls["embedding_backward"] == 3 * 1);
  CHECK(calls["cross_entropy_backward"] == 3 * 1);
  CHECK(calls["ordered_sum"] >= 3 * 3);  // of each unit's gradient
  for (size_t step = 0; step < 3; ++step) {
    CAPTURE(step);
    double sum = 0, of_matmuls = 0;
    for (const auto& [kernel, seconds] : steps.calls) {
      const size_t each = seconds.size() / 3;  // in a step, one after the other
      REQUIRE(seconds.size() == 3 * each);
      for (size_t i = step * each; i < (step + 1) * each; ++i) {
        CHECK(seconds[i] >= 0);
        sum += seconds[i];
        if (kernel.name.starts_with("matmul ")) of_matmuls += seconds[i];
      }
    }
    CHECK(of_matmuls > 0);
    CHECK(sum > of_matmuls);
    CHECK(sum <= steps.seconds[step]);
  }
  CHECK(counts(train(1).calls)["matmuls"] == 3 * 3 * (4 * 1 + 1));  // the twin
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
  const std::vector<double> seconds = timed.calls().at({.name = "fill"});
  CHECK((seconds.size() == 1 && seconds[0] > 0));
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
  const std::vector<double> seconds = timed.calls().at({.name = "move_bytes"});
  REQUIRE(seconds.size() == 2);
  CHECK(seconds[1] > 4 * seconds[0]);
}
