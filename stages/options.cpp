#include "stages/options.h"

#include "tensor/error.h"

namespace zl {

const char* name(OffloadDevice device) {
  return device == OffloadDevice::none ? "none" : device == OffloadDevice::cpu ? "cpu" : "nvme";
}

std::string activations_misfit(const Options& o, int ranks) {
  if (o.replicated_micro_batches && o.reproducible)
    return "replicated micro-batches have no reproducible sums: those depend on the micro-batches "
           "alone, but here each further rank adds the same ones again; leave one of the two out";
  if (!o.partition_activations || o.replicated_micro_batches || ranks == 1) return "";
  return str(
      "activations cannot be partitioned: the ", ranks,
      " ranks read different micro-batches, so each activation exists on one rank only, and there "
      "is no copy to leave out. Tensor-parallel ranks hold the same activations; data-parallel "
      "ranks do not, and in DeepSpeed the key then saves nothing. Try cpu_checkpointing, or a "
      "smaller micro-batch; \"zerolab\": {\"replicated_micro_batches\": true} gives all ranks the "
      "same micro-batches, to study it");
}

}  // namespace zl
