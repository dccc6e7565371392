// The counts of launches and reads that performance.md states for a step of GPT-2. They
// depend on the number of blocks, but not on sizes.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "dist/run_ranks.h"
#include "nn/gpt.h"
#include "stages/engine.h"
#include "tensor/kernels.h"
#include "tests/cuda/on_cpu/launches.h"
#include "tests/device.h"
#include "tests/paths.h"

using namespace zl;
using namespace zl::test;

namespace {

struct StepCounts {
  std::map<std::string, int64_t> calls, launches;  // by kernel function
  int64_t products = 0;                            // launches by matmul calls, which may split them
  int64_t all = 0;                                 // launches, products included
  int64_t reads = 0;                               // by the host
};

// The second step: one micro-batch, ddp, one rank.
StepCounts counts_of_step(int64_t layers, Recompute recompute) {
  StepCounts counts;
  run_ranks(1, [&](Communicator& comm) {
    const auto gpu = gpu_of_rank(0);
    Memory memory({DeviceKind::cuda}, *gpu, comm.events());
    Gpt model({.layers = layers, .heads = 2, .width = 16, .block_size = 3, .vocab = 11}, recompute);
    const auto engine =
        initialize(model.units(), comm, memory,
                   {.stage = StageKind::ddp, .gradient_clipping = 1, .precision = Dtype::bf16});
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
    const auto step = [&] {
      Var loss = engine->forward([&](Tape* tape, UnitObserver& observer) {
        return model.loss(tape, observer, {ids, ids});
      });
      engine->backward(loss);
      engine->step();
    };
    step();
    (void)engine->loss_of_step();
    std::string kernel = "none";
    int64_t before = cuda_on_cpu::launches.kernels;
    const auto products = [] {
      return cuda_on_cpu::launches.products + cuda_on_cpu::launches.bias_products;
    };
    const auto attribute = [&] {
      counts.launches[kernel] += cuda_on_cpu::launches.kernels - before;
      before = cuda_on_cpu::launches.kernels;
    };
    comm.events().listen([&](const Event& event) {
      if (event.kind != EventKind::kernel) return;
      attribute();
      kernel = event.what;
      ++counts.calls[kernel];
    });
    const int64_t launched = before, multiplied = products(), waits = gpu->host_waits();
    step();
    (void)engine->loss_of_step();
    attribute();
    counts.reads = gpu->host_waits() - waits;
    counts.products = products() - multiplied;
    counts.all = cuda_on_cpu::launches.kernels - launched + counts.products;
  });
  return counts;
}

using Rows = std::map<std::string, int64_t>;  // by the beginning of the first column

// The last number in the second column of each row of the roofline's table.
Rows rows_of_page() {
  std::ifstream in(ZEROLAB_SOURCE_DIR "/tutorials/reference/performance.md");
  const std::regex row("\\| ([^|,(]*[^|,( ])[^|]*\\|[^|]*?([0-9]+)( reads)? \\|.*");
  Rows all;
  bool in_table = false;
  for (std::string line; std::getline(in, line);) {
    in_table |= line.starts_with("| part | kernels");
    std::smatch found;
    if (in_table && std::regex_match(line, found, row)) {
      const bool again = all.contains(found[1]);  // "attention, backward", "matmuls of the head"
      all[again ? found[1].str() + " again" : found[1].str()] = std::stoll(found[2]);
    }
    if (line.starts_with("| **step**")) break;
  }
  return all;
}

Rows rows(StepCounts step) {
  auto& n = step.launches;
  const int64_t of_norm = 2;  // the squares of units are added by sum_rows
  return {{"matmuls of the blocks", step.calls["matmul"] - 3},
          {"matmuls of the head", step.products - (step.calls["matmul"] - 3)},
          {"attention", n["attention"]},
          {"attention again", n["attention_backward"]},
          {"sums over rows", n["sum_rows"] - of_norm},
          {"GELU", n["gelu"] + n["gelu_backward"]},
          {"layer norm", n["layer_norm"] + n["layer_norm_backward"]},
          {"residual additions", n["add"]},
          {"cross-entropy", n["cross_entropy"] + n["cross_entropy_backward"]},
          {"embeddings and positions", n["embedding"] + n["embedding_backward"] +
                                           n["add_positions"] + n["add_positions_backward"]},
          // Behind products only the padding of the logits is set.
          {"gradient checks", n["sums_of_squares"] + n["fill"] + of_norm + n["matmul"]},
          {"AdamW", n["adamw"]},
          {"reads by the host", step.reads},
          {"**step**", step.all}};
}

}  // namespace

TEST_CASE("a step of GPT-2 launches what the table of performance.md names", "[cuda][host]") {
  const Rows page = rows_of_page(), measured = rows(counts_of_step(12, Recompute::selective));
  for (const auto& [part, count] : measured) {
    CAPTURE(part);
    REQUIRE(page.contains(part));
    CHECK(page.at(part) == count);
  }
  // The twin: nothing is computed again in backward, of one block its GELU and of three norms.
  const Rows with = rows(counts_of_step(1, Recompute::selective)),
             without = rows(counts_of_step(1, Recompute::none));
  CHECK(without.at("GELU") == 2);
  CHECK(without.at("layer norm") == 12);
  CHECK(without.at("**step**") == with.at("**step**") - 1 - 3);
}
