// The machines and models of each check of exercise 11, which follow from the seed, and the
// library's numbers of bytes for them.
#pragma once

#include <algorithm>
#include <numeric>

#include "stages/predict/closed_form.h"
#include "tutorials/exercises/11_choose_stage/choose_stage.h"
#include "tutorials/exercises/judge/flat_units.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::choose_stage_checks {

// A stage on a machine, with the numbers of the library's closed formulas.
struct Choice {
  Cluster cluster;
  Training t;
  int stage;
  std::vector<int64_t> units = padded_unit_sizes(FlatUnits(t.units).list, t.ranks);
  Prediction right = predict({.options = {.stage = kStages[stage],
                                          .accumulation = t.micro_batches,
                                          .precision = t.mixed ? Dtype::bf16 : Dtype::f32},
                              .ranks = t.ranks,
                              .units = units});
  double N = t.ranks, A = double(t.micro_batches);
  // [n] With padding, and without.
  double all = std::accumulate(units.begin(), units.end(), 0.0),
         plain = std::accumulate(t.units.begin(), t.units.end(), 0.0);

  // [B] Nothing else, such as what holds the norm.
  static double state(const auto& of_uses) {
    double bytes = 0;
    for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient,
                                MemoryUse::optimizer_state, MemoryUse::master_weights})
      bytes += double(of_uses[size_t(use)]);
    return bytes;
  }
  double kept() const { return state(right.device.rest); }
  double peak() const { return state(right.device.peak); }
  // [B] Per step: gradients or parameters.
  double sent_for(Purpose purpose) const {
    double bytes = 0;
    for (const auto& [key, row] : right.traffic.rows())
      if (key.purpose == purpose) bytes += double(row.sent_bytes());
    return bytes;
  }
  double sent() const { return sent_for(Purpose::gradient) + sent_for(Purpose::parameter); }
};

inline bool asks_for_choice(const CheckOptions& options) {
  return options.is("the choice") || options.is("to the byte");
}

// What a check asks for: of each stage a number; or, where `stage` has no meaning, which stage. One
// rank, which sends nothing. Then within a node, a full node, and several nodes; first with few
// tokens, then with so many that a node's communication can be hidden. One model is root alone.
inline std::vector<Choice> choices(const CheckOptions& options) {
  Draw draw(options);
  const auto power_of_two = [&](int64_t low) {
    return double(int64_t{1} << (low + draw.between(0, 2)));
  };
  const bool fp32 = options.is("between steps"), mixed = options.is("mixed precision"),
             once = fp32 || options.is("sent");
  std::vector<Choice> all;
  for (const int64_t more_tokens : {0, 2000})
    for (const int ranks : {1, 3, 4, 5, 8}) {
      Training training{.ranks = ranks,
                        .mixed = mixed || (!fp32 && ranks % 2 == 0),
                        .micro_batches = once ? 1 : draw.between(2, 5),
                        .tokens = draw.between(3, 90) + more_tokens};
      for (int64_t b = ranks == 5 ? 0 : draw.between(2, 5); b >= 0; --b)
        training.units.push_back(2 * draw.between(200, 900) + 1);  // odd
      // Rates are powers of two, so that times are exact and equal times are equal in each way to
      // compute them.
      const Cluster cluster{.memory = int64_t{1} << 40,
                            .gpus_per_node = 4,
                            .node_bandwidth = power_of_two(18),
                            .network_bandwidth = power_of_two(15),
                            .rate = power_of_two(22)};
      // For a choice much memory, next to none, and the peak of each stage, a little more, or a
      // byte less.
      const bool choice = asks_for_choice(options);
      for (int i = choice ? -2 : 0; i < (choice ? 8 : 4); ++i) {
        Choice& c = all.emplace_back(Choice{cluster, training, choice ? std::max(0, i / 2) : i});
        if (i == -1) c.cluster.memory = 64;
        if (choice && i >= 0)
          c.cluster.memory = int64_t(c.peak()) + (options.is("to the byte") ? -(i % 2) : 7);
      }
    }
  return all;
}

}  // namespace zl::exercises::choose_stage_checks
