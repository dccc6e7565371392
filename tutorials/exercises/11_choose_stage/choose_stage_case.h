// The machines and models of each check of exercise 11, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/closed_form.h"
#include "tutorials/exercises/11_choose_stage/choose_stage.h"
#include "tutorials/exercises/judge/flat_units.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::choose_stage_checks {

struct ChoiceCase {
  Cluster cluster;
  Training training;
};

// What a check asks for: one number for each case and stage; `choice`: one for each case.
enum class Asked { kept, peak, sent, seconds, choice };
inline Asked asked_by(const CheckOptions& options) {
  if (options.is("between steps") || options.is("mixed precision")) return Asked::kept;
  if (options.is("at the peak")) return Asked::peak;
  if (options.is("sent") || options.is("several micro-batches")) return Asked::sent;
  return options.is("seconds") ? Asked::seconds : Asked::choice;
}

// By the library: predict() of stages/predict/closed_form.h.
struct LibraryNumbers {
  std::vector<int64_t> units;         // [n] with padding, root first
  int64_t kept = 0, peak = 0;         // [B]
  int64_t reduced = 0, gathered = 0;  // [B] of a step
};
inline LibraryNumbers library_numbers(const Training& training, int stage) {
  LibraryNumbers numbers{.units =
                             padded_unit_sizes(FlatUnits(training.units).list, training.ranks)};
  const Prediction p = predict({.options = {.stage = kStages[stage],
                                            .accumulation = training.micro_batches,
                                            .precision = training.mixed ? Dtype::bf16 : Dtype::f32},
                                .ranks = training.ranks,
                                .units = numbers.units});
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state,
                              MemoryUse::master_weights}) {
    numbers.kept += p.device.rest_of(use);
    numbers.peak += p.device.peak_of(use);
  }
  for (const auto& [key, row] : p.traffic.rows()) {
    if (key.purpose == Purpose::gradient) numbers.reduced += row.sent_bytes();
    if (key.purpose == Purpose::parameter) numbers.gathered += row.sent_bytes();
  }
  return numbers;
}

// One rank, which sends nothing. Then within a node, a full node, and several nodes; first with few
// tokens, then with so many that a node's communication can be hidden. One model is root alone.
inline std::vector<ChoiceCase> choice_cases(const CheckOptions& options) {
  Draw draw(options);
  const auto power_of_two = [&](int64_t low) {
    return double(int64_t{1} << (low + draw.between(0, 2)));
  };
  const Asked asked = asked_by(options);
  const bool exact = options.is("to the byte"),
             once = options.is("between steps") || options.is("sent");
  std::vector<ChoiceCase> all;
  for (const int64_t more_tokens : {0, 2000})
    for (const int ranks : {1, 3, 4, 5, 8}) {
      ChoiceCase c;
      c.training = {.ranks = ranks,
                    .mixed = asked == Asked::kept ? options.is("mixed precision") : ranks % 2 == 0,
                    .micro_batches = once ? 1 : draw.between(2, 5),
                    .tokens = draw.between(3, 90) + more_tokens};
      for (int64_t b = ranks == 5 ? 0 : draw.between(2, 5); b >= 0; --b)
        c.training.units.push_back(2 * draw.between(200, 900) + 1);  // odd
      // Rates are powers of two, so that times are exact and equal times are equal in each way to
      // compute them.
      c.cluster = {.memory = int64_t{1} << 40,
                   .gpus_per_node = 4,
                   .node_bandwidth = power_of_two(18),
                   .network_bandwidth = power_of_two(15),
                   .rate = power_of_two(22)};
      all.push_back(c);
      // Then next to no memory; and the peak of each stage, a little more, or a byte less.
      for (int i = -1; asked == Asked::choice && i < 8; ++i) {
        c.cluster.memory =
            i < 0 ? 64 : library_numbers(c.training, i / 2).peak + (exact ? -(i % 2) : 7);
        all.push_back(c);
      }
    }
  return all;
}

}  // namespace zl::exercises::choose_stage_checks
