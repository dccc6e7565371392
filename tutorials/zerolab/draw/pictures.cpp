#include "tutorials/zerolab/draw/pictures.h"

namespace zl::draw {

const std::vector<Picture>& pictures() {
  static const std::vector<Picture> all = {
      {"stages", "README.md", "what each rank keeps under the four stages", draw_stages},
      {"ranks", "tutorials/00_doctor.md", "four ranks in one process", draw_ranks},
      {"live_bytes", "tutorials/01_tensor.md", "live bytes, statement by statement",
       draw_live_bytes},
      {"tape", "tutorials/02_autograd.md", "a tape with hooks, and final gradients", draw_tape},
      {"step_memory", "tutorials/03_gpt.md", "memory over one training step", draw_step_memory},
      {"ring", "tutorials/04_collectives.md", "an all-reduce in a ring, step by step", draw_ring},
      {"buckets", "tutorials/05_ddp.md", "when ddp reduces each gradient", draw_buckets},
      {"shards", "tutorials/06_zero1.md", "a unit, its padding and its shards", draw_shards},
      {"bucket_peaks", "tutorials/07_zero2.md", "memory over a step under ddp, zero1 and zero2",
       draw_bucket_peaks},
      {"full_parameters", "tutorials/08_zero3.md", "when zero3 has full parameters",
       draw_full_parameters},
      {"number_ranges", "tutorials/09_precision.md", "which numbers 16-bit types have",
       draw_number_ranges},
      {"offload", "tutorials/10_offload.md", "what device, host and disk keep", draw_offload},
      {"prefetch", "tutorials/11_overlap.md", "zero3 without and with prefetch", draw_prefetch},
      {"activations", "tutorials/12_activations.md",
       "activations over a step with each way to recompute", draw_activations},
      {"checkpoint", "tutorials/13_checkpoints.md", "who writes and who reads which part of a file",
       draw_checkpoint},
      {"failures", "tutorials/14_failures.md", "where each rank is when one fails", draw_failures},
      {"step_times", "tutorials/15_decision.md", "a step of each stage by number of ranks",
       draw_step_times},
      {"unit_calls", "tutorials/reference/internals.md", "what each stage does with a block",
       draw_unit_calls},
      {"in_flight", "tutorials/reference/overlap.md", "collectives without and with overlap",
       draw_in_flight}};
  return all;
}

}  // namespace zl::draw
