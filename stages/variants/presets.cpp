#include "stages/variants/presets.h"

#include <algorithm>

namespace zl {

std::span<const Preset> presets() {
  // Of both stages that DeepSpeed keeps in one flat unit.
  static const std::string flat =
      "it all-reduces gradients, and a rank keeps its shard of them; keeps an fp32 copy of its "
      "weights, 4 Ψ/N, in fp32 too, frees gradients at the update, and takes a bucket of "
      "reduce_bucket_size elements for each backward pass";
  static const std::string not_flat =
      "the norm's all-reduce of 4 B, in bf16 an all-reduce of 1 B, the whole copy of a gradient "
      "that two ranks share, reductions while backward runs, several all-gathers by "
      "allgather_bucket_size (on a PyTorch without all_gather_into_tensor), round_robin_gradients";
  static const char* buckets = "all-reduces gradients in buckets of 5e8 elements (DeepSpeed)";
  static const Preset table[] = {
      {"deepspeed-1", StageKind::zero1, buckets,
       "sends (N-1)/N (2c + e) Ψ where zero1 sends (N-1)/N (c + e) Ψ: " + flat, not_flat},
      {"deepspeed-2", StageKind::zero2, buckets,
       "sends (N-1)/N (2c A + e) Ψ where zero2 sends (N-1)/N (c A + e) Ψ: " + flat, not_flat},
      {"deepspeed-3", StageKind::zero3, "keeps small parameters and what is used again (DeepSpeed)",
       "sends (N-1)/N A (e + (1-f) e + c) Ψ where zero3 sends (N-1)/N A (2e + c) Ψ, less root's "
       "second gather: the part f of the parameters stays between forward and backward "
       "(max_reuse_distance); small ones stay always, and are gathered after the update; keeps an "
       "fp32 copy, 4 Ψ/N, in fp32 too, and a bucket of reduce_bucket_size elements",
       "the norm's all-reduce of 8 B, gathers by leaf module (here by unit of the model, or all at "
       "once where prefetch allows it), a first step without prefetch, a second shard of small "
       "parameters, sub-groups"},
      {"fsdp2", StageKind::zero3, "frees gradients after the step (PyTorch's fully_shard)",
       "sends what zero3 sends; frees gradients after the step, g Ψ/N",
       "implicit prefetch and overlap (a second unit is unsharded at the peak), shards by rows of "
       "each parameter (here of a unit), buffers that all-gathers are copied from, gradient shards "
       "that appear one by one"},
      {"fsdp2-no-reshard", StageKind::zero3, "keeps parameters from forward to backward (PyTorch)",
       "sends (N-1)/N A (e + c) Ψ where zero3 sends (N-1)/N A (2e + c) Ψ, less root's second "
       "gather: "
       "parameters stay from forward to backward; frees gradients after the step, g Ψ/N",
       "implicit prefetch and overlap, shards by rows of each parameter (here of a unit), buffers "
       "that all-gathers are copied from, gradient shards that appear one by one"},
      {"torch-ddp", StageKind::ddp, "copies gradients into buckets that are never freed (PyTorch)",
       "sends what ddp sends, 2 (N-1)/N c Ψ, in buckets of 1 MiB and 25 MiB that take c Ψ more and "
       "are never freed; frees gradients after the step, g Ψ",
       "reductions while backward runs, the order of buckets that the first step measures, a "
       "reduction in every micro-batch outside no_sync()"},
  };
  return table;
}

const Preset* find_preset(std::string_view name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  return found == presets().end() ? nullptr : &*found;
}

}  // namespace zl
