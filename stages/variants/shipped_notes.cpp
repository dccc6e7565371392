#include "stages/variants/shipped.h"

namespace zl {

const char* difference_to_paper(StageKind kind) {
  switch (kind) {
    case StageKind::deepspeed_1:
      return "sends (N-1)/N (2c + e) Ψ where zero1 sends (N-1)/N (c + e) Ψ: it all-reduces "
             "gradients, and a rank keeps its shard of them; keeps an fp32 copy of its weights, "
             "4 Ψ/N, in fp32 too, frees gradients at the update, and takes a bucket of "
             "reduce_bucket_size elements for each backward pass";
    case StageKind::deepspeed_2:
      return "sends (N-1)/N (2c A + e) Ψ where zero2 sends (N-1)/N (c A + e) Ψ: it all-reduces "
             "gradients, and a rank keeps its shard of them; keeps an fp32 copy of its weights, "
             "4 Ψ/N, in fp32 too, frees gradients at the update, and takes a bucket of "
             "reduce_bucket_size elements for each backward pass";
    case StageKind::deepspeed_3:
      return "sends (N-1)/N A (e + (1-f) e + c) Ψ where zero3 sends (N-1)/N A (2e + c) Ψ, less "
             "root's second gather: the part f of the parameters stays between forward and "
             "backward (max_reuse_distance); small ones stay always, and are gathered after the "
             "update; keeps an fp32 copy, 4 Ψ/N, in fp32 too, and a bucket of reduce_bucket_size "
             "elements";
    case StageKind::fsdp2: return "sends what zero3 sends; frees gradients after the step, g Ψ/N";
    case StageKind::fsdp2_no_reshard:
      return "sends (N-1)/N A (e + c) Ψ where zero3 sends (N-1)/N A (2e + c) Ψ, less root's second "
             "gather: parameters stay from forward to backward; frees gradients after the step, "
             "g Ψ/N";
    case StageKind::torch_ddp:
      return "sends what ddp sends, 2 (N-1)/N c Ψ, in buckets of 1 MiB and 25 MiB that take c Ψ "
             "more and are never freed; frees gradients after the step, g Ψ";
    default: return "";
  }
}

const char* not_imitated(StageKind kind) {
  switch (kind) {
    case StageKind::deepspeed_1:
    case StageKind::deepspeed_2:
      return "the norm's all-reduce of 4 B (here an all-gather of 8 B per rank), in bf16 an "
             "all-reduce of 1 B, the whole copy of a gradient that two ranks share, reductions "
             "while backward runs, several all-gathers by allgather_bucket_size (on a PyTorch "
             "without all_gather_into_tensor), round_robin_gradients";
    case StageKind::deepspeed_3:
      return "the norm's all-reduce of 8 B (here an all-gather of 8 B per rank), gathers by leaf "
             "module (here by unit of the model, or all at once where prefetch allows it), a first "
             "step without "
             "prefetch, a second shard of small parameters, sub-groups";
    case StageKind::fsdp2:
    case StageKind::fsdp2_no_reshard:
      return "implicit prefetch and overlap (there a second unit is unsharded at the peak), shards "
             "by rows of each parameter (here of a unit), buffers that all-gathers are copied "
             "from, gradient shards that appear one by one";
    case StageKind::torch_ddp:
      return "reductions while backward runs, the order of buckets that the first step measures, "
             "a reduction in every micro-batch outside no_sync()";
    default: return "";
  }
}

}  // namespace zl
