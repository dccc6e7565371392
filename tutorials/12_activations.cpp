// What does backward keep, and what of it can a rank leave out? Activation checkpointing, with
// inputs on the device, on the host or partitioned; and a buffer of constant size.
#include "tensor/error.h"
#include "tutorials/12_ways_to_wait.h"

using namespace zl;
using namespace zl::lesson;

void what_is_kept(Lesson& lesson, const std::vector<Seen>& seen) {
  const Letters m = letters(lesson);
  const auto [L, C, H, V, BT] = m;
  lesson.say("what waits when backward begins: of each block, and outside them");
  lesson.number("none", seen[0].waiting, m.bytes(16 * C + 4 + H, 4 + 2 * C + V),
                "4 B x (BT (L (16 C + 4 + H) + 4 + 2 C + V) + 1)");
  lesson.number("selective", seen[1].waiting, m.bytes(10 * C + 4 + H, 4 + C + V),
                "4 B x (BT (L (10 C + 4 + H) + 4 + C + V) + 1)");
  lesson.number("full", seen[2].waiting, m.bytes(C, 4 + 2 * C + V),
                "4 B x (BT (L C + 4 + 2 C + V) + 1): of a block only its input");
  lesson.say("the most at one time, and what full costs");
  lesson.number("none_peak", seen[0].peak,
                m.bytes(16 * C + 4 + H, std::max(4 + 3 * C + V, 2 + 5 * C)),
                "4 B x (BT (L (16 C + 4 + H) + max(4 + 3 C + V, 2 + 5 C)) + 1)");
  lesson.number("selective_peak", seen[1].peak, m.bytes(10 * C + 4 + H, 2 + 5 * C),
                "4 B x (BT (L (10 C + 4 + H) + 2 + 5 C) + 1)");
  lesson.number("full_peak", seen[2].peak, m.bytes(C, 15 * C + 4 + H + 2 + 6 * C),
                "4 B x (BT (L C + 15 C + 4 + H + 2 + 6 C) + 1): one block at work");
  lesson.number("operations_again", seen[2].matmul - seen[0].matmul, L * 2 * BT * 12 * C * C,
                "L x 2 BT x 12 C^2: matmuls of a second forward of each block");
}

void where_inputs_wait(Lesson& lesson, const std::vector<Seen>& seen) {
  const Letters m = letters(lesson);
  const int64_t N = lesson.ranks(), L = m.L, n = m.BT * m.C, p = (n + N - 1) / N;
  const bool cut = N > 1;  // one rank keeps all of an input
  const Seen &device = seen[2], &host = seen[3], &parts = seen[4], &both = seen[5];
  lesson.say("\nwhere the L inputs wait, n = BT C elements each; a rank's part is p = n / N");
  lesson.number("host_peak", host.peak, device.peak - 4 * (L - 1) * n,
                "full_peak - 4 B x (L - 1) n: one input is back");
  lesson.number("host_bytes", host.host_peak, 4 * L * n, "4 B x L n in host memory");
  lesson.number("host_moved", host.moved, 4 * L * n, "4 B x L n there, and as much back");
  lesson.number("parts_waiting", parts.waiting, device.waiting - (cut ? 4 * L * (n - p) : 0),
                "full - 4 B x L (n - p)");
  lesson.number("parts_peak", parts.peak, device.peak + (cut ? 4 * (L * (p - n) + N * p) : 0),
                "full_peak - 4 B x (L (n - p) - N p): one gathered input beside the parts");
  lesson.number("parts_sent", parts.gathered, 4 * L * (N - 1) * p, "4 B x L (N - 1) p");
  lesson.number("both_host_bytes", both.host_peak, 4 * L * (cut ? p : n), "4 B x L p");
  bool equal = true;
  for (const Seen& s : seen) equal &= s.loss == seen[0].loss;
  lesson.check("all six ways have the same loss, bit for bit", equal);
  if (!cut) return;
  TrainingSpec spec = spec_of(lesson, {Recompute::full, false, true});
  spec.engine.replicated_micro_batches = false;
  std::string refusal;
  try {
    train_m(lesson, spec);
  } catch (const InputError& error) {
    refusal = error.what();
  }
  lesson.say("with a micro-batch per rank: " + refusal.substr(0, refusal.find(". ")));
  lesson.check("partitioned inputs need the same micro-batch on all ranks", !refusal.empty());
}

// C_B: gradients in bf16 are reduced in fp32, in a buffer that is as large as a bucket.
void constant_buffer(Lesson& lesson) {
  lesson.say("\nthe fp32 buffer of reductions, with gradients in bf16");
  for (const int64_t layers : {int64_t(2), int64_t(8)}) {
    const SizesM sizes = sizes_m(lesson.ranks(), layers);
    const auto buffer = [&](int64_t bucket) {
      TrainingSpec spec = training_m(lesson, StageKind::zero1, layers);
      spec.engine.precision = Dtype::bf16, spec.engine.communication_data_type = Dtype::f32;
      spec.engine.reduce_bucket_size = bucket;
      return train_m(lesson, spec).ranks[0].rest.peak(MemoryUse::communication);
    };
    const std::string of = str("_", layers, "_layers");
    lesson.number("fused" + of, buffer(500'000'000), 4 * sizes.padded(), "4 B x Psi, padded");
    lesson.number("constant" + of, buffer(1), 4 * sizes.padded_block, "4 B x the largest unit");
  }
}

int main(int argc, char** argv) {
  const About about{.name = "12_activations",
                    .question = "What does backward keep, and what of it can a rank leave out?",
                    .flags = {{"--layers", "L", "blocks of the model", 2, 1, 8}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    std::vector<Seen> seen;
    for (const Way& way : std::initializer_list<Way>{{Recompute::none},
                                                     {Recompute::selective},
                                                     {Recompute::full},
                                                     {Recompute::full, true},
                                                     {Recompute::full, false, true},
                                                     {Recompute::full, true, true}})
      seen.push_back(step_of(lesson, way, way.partitioned && !way.on_host));
    what_is_kept(lesson, seen);
    where_inputs_wait(lesson, seen);
    constant_buffer(lesson);
  });
}
