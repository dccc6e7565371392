// The block activation_checkpointing, whose keys DeepSpeed 0.19.8 reads in
// runtime/activation_checkpointing/config.py.

#include "stages/deepspeed/reader.h"
#include "tensor/error.h"

namespace zl {

void read_activations(ConfigBlock block, ConfigBlock& zerolab, int ranks, Config& config) {
  block.read("partition_activations", config.partition_activations);
  block.read("cpu_checkpointing", config.cpu_checkpointing);
  block.read("number_checkpoints", config.checkpoints);
  const char* asks = config.partition_activations ? "partition_activations"
                     : config.cpu_checkpointing   ? "cpu_checkpointing"
                     : config.checkpoints > 0     ? "number_checkpoints"
                                                  : nullptr;
  if (asks && zerolab.given("recompute") && config.recompute != Recompute::full)
    block.error(
        asks, str("needs activation checkpointing, but zerolab.recompute is \"",
                  name(config.recompute), "\"; write \"full\" there, or leave one of the two out"));
  if (asks) config.recompute = Recompute::full;
  const std::string misfit = activations_misfit(config, ranks);
  if (!misfit.empty() && config.reproducible && config.replicated_micro_batches)
    zerolab.error("replicated_micro_batches", misfit);
  else if (!misfit.empty())
    block.error("partition_activations", misfit);
  block.finish();
}

}  // namespace zl
