// The machines and models of each check of exercise 11, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/closed_form.h"
#include "tensor/error.h"
#include "tutorials/exercises/11_choose_stage/choose_stage.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::choose_stage_checks {

struct ChoiceCase {
  Cluster cluster;
  Training training;
};

// What a check asks for: one number for each case and stage; `choice`: one for each case.
enum class Asked { kept, peak, sent, seconds, choice };

// By the library: predict() of stages/predict/closed_form.h.
struct LibraryNumbers {
  std::vector<int64_t> units;                   // [n] with padding, root first
  int64_t kept = 0, peak = 0;                   // [B]
  int64_t reduced = 0, gathered = 0, sent = 0;  // [B] of a step; sent: both together
};

inline LibraryNumbers library_numbers(const Training& training, int stage) {
  constexpr StageKind kStages[] = {StageKind::ddp, StageKind::zero1, StageKind::zero2,
                                   StageKind::zero3};
  std::vector<Parameter> parameters(training.units.size());
  std::vector<Unit> units(training.units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    parameters[i].shape = {training.units[i]};
    units[i] = {.name = str("unit ", i), .parameters = {&parameters[i]}, .index = int(i)};
  }
  LibraryNumbers numbers{.units = padded_unit_sizes(units, training.ranks)};
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
  numbers.sent = numbers.reduced + numbers.gathered;
  return numbers;
}

struct Cases : Draw {
  using Draw::Draw;
  double power_of_two(int64_t low, int64_t high) {
    return double(int64_t(1) << between(low, high));
  }

  // Units of odd sizes on a machine with room for all stages. Rates are powers of two, so that
  // times are exact and equal times are equal in each way to compute them.
  ChoiceCase make(int ranks, int64_t blocks, int64_t micro_batches = 1, bool mixed = false) {
    ChoiceCase c;
    c.training = {.ranks = ranks, .mixed = mixed, .micro_batches = micro_batches};
    for (int64_t b = 0; b <= blocks; ++b) c.training.units.push_back(2 * between(200, 900) + 1);
    c.training.tokens = between(3, 90);
    c.cluster = {.memory = int64_t(1) << 40,
                 .gpus_per_node = int(between(1, 9)),
                 .node_bandwidth = power_of_two(18, 20),
                 .network_bandwidth = power_of_two(15, 17),
                 .rate = power_of_two(22, 25)};
    return c;
  }

  std::vector<ChoiceCase> numbers(bool mixed, int64_t micro_batches) {
    return {make(3, between(3, 6), micro_batches, mixed), make(1, 2, micro_batches, mixed),
            make(int(between(4, 7)), between(2, 5), micro_batches, mixed),
            make(5, 0, micro_batches, mixed)};
  }

  // One rank, which sends nothing. Then within a node, a full node, one rank more, and a node for
  // each rank, with few tokens and with many.
  std::vector<ChoiceCase> seconds() {
    std::vector<ChoiceCase> all;
    for (const int tokens : {1, 32})
      for (const auto& [ranks, per_node] : {std::pair{1, 2}, {3, 4}, {4, 4}, {5, 4}, {3, 1}}) {
        all.push_back(make(ranks, between(2, 5), between(2, 4), ranks % 2 == 0));
        all.back().training.tokens *= tokens;
        all.back().cluster.gpus_per_node = per_node;
      }
    return all;
  }

  // For each stage the memory that its peak takes, and `less` bytes less; of few ranks and of many,
  // so that a later stage may need more. Then next to nothing, and much. First with few tokens over
  // the network, then with so many in one node that all communication can be hidden.
  std::vector<ChoiceCase> limits(int64_t less) {
    std::vector<ChoiceCase> all;
    for (const bool hidden : {false, true})
      for (const int ranks : {2, 3, 8}) {
        ChoiceCase c = make(ranks, ranks == 2 ? 1 : between(3, 5), between(1, 3), ranks == 8);
        c.cluster.gpus_per_node = hidden ? ranks : 1;
        if (hidden) c.training.tokens += 2000;
        for (int stage = 0; stage < 4; ++stage)
          for (const int64_t below : {int64_t(0), less}) {
            c.cluster.memory = library_numbers(c.training, stage).peak - below;
            all.push_back(c);
          }
        for (const int64_t memory : {int64_t(64), int64_t(1) << 40}) {
          c.cluster.memory = memory;
          all.push_back(c);
        }
      }
    return all;
  }
};

inline Asked asked_by(const std::string& check) {
  if (check == "between steps" || check == "mixed precision") return Asked::kept;
  if (check == "at the peak") return Asked::peak;
  if (check == "sent" || check == "several micro-batches") return Asked::sent;
  return check == "seconds" ? Asked::seconds : Asked::choice;
}

inline std::vector<ChoiceCase> choice_cases(const std::string& check, const CheckOptions& options) {
  Cases w(check, options);
  const Asked asked = asked_by(check);
  if (asked == Asked::seconds) return w.seconds();
  if (asked == Asked::choice) {
    std::vector<ChoiceCase> all = w.limits(check == "to the byte" ? 1 : 0);
    for (ChoiceCase& c : all) c.cluster.memory += check == "to the byte" ? 0 : 7;
    return all;
  }
  const int64_t micro_batches = check == "several micro-batches" ? w.between(2, 5) : 1;
  std::vector<ChoiceCase> all = w.numbers(check == "mixed precision", micro_batches);
  if (asked != Asked::kept)
    for (const ChoiceCase& c : w.numbers(true, micro_batches)) all.push_back(c);
  return all;
}

}  // namespace zl::exercises::choose_stage_checks
