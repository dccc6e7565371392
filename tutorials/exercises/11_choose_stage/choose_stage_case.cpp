#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"

#include "stages/predict/closed_form.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace zl::exercises::choose_stage_checks {
namespace {

class Writer {
 public:
  Writer(const std::string& check, uint64_t seed) : stream_{seed, fnv1a(check)} {}

  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.uniform(next_++) * double(high - low + 1));
  }

  // Units of odd sizes on a machine with room for all stages.
  ChoiceCase make(int ranks, int64_t blocks, int64_t micro_batches = 1, bool mixed = false) {
    ChoiceCase c;
    c.training = {.ranks = ranks, .mixed = mixed, .micro_batches = micro_batches};
    for (int64_t b = 0; b <= blocks; ++b) c.training.units.push_back(2 * between(200, 900) + 1);
    c.training.tokens = between(3, 90);
    c.cluster = {.memory = int64_t(1) << 40,
                 .gpus_per_node = int(between(1, 9)),
                 .node_bandwidth = double(between(500, 900)) * 1e3,
                 .network_bandwidth = double(between(50, 400)) * 1e3,
                 .rate = double(between(20, 90)) * 1e6};
    return c;
  }

  std::vector<ChoiceCase> numbers(bool mixed, int64_t micro_batches) {
    return {make(3, between(3, 6), micro_batches, mixed), make(1, 2, micro_batches, mixed),
            make(int(between(4, 7)), between(2, 5), micro_batches, mixed),
            make(5, 0, micro_batches, mixed)};
  }

  // Within a node, a full node, one rank more, and a node for each rank.
  std::vector<ChoiceCase> seconds() {
    std::vector<ChoiceCase> all;
    for (const auto& [ranks, per_node] : {std::pair{3, 4}, {4, 4}, {5, 4}, {3, 1}, {1, 2}}) {
      all.push_back(make(ranks, between(2, 5), between(1, 4), ranks % 2 == 0));
      all.back().cluster.gpus_per_node = per_node;
    }
    return all;
  }

  // For each stage the memory that its peak takes, and `less` bytes less; of few ranks and of many,
  // so that a later stage may need more. Then next to nothing, and much.
  std::vector<ChoiceCase> limits(int64_t less) {
    std::vector<ChoiceCase> all;
    for (const int ranks : {2, 3, 8}) {
      ChoiceCase c = make(ranks, ranks == 2 ? 1 : between(3, 5), between(1, 3), ranks == 8);
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

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

}  // namespace

Asked asked_by(const std::string& check) {
  if (check == kKept || check == kMixed) return Asked::kept;
  if (check == kPeak) return Asked::peak;
  if (check == kSent || check == kMicro) return Asked::sent;
  if (check == kSeconds) return Asked::seconds;
  require_input(check == kChoice || check == kExact, "exercise 11 has no check '", check, "'");
  return Asked::choice;
}

std::vector<ChoiceCase> choice_cases(const std::string& check, uint64_t seed) {
  Writer w(check, seed);
  if (check == kSeconds) return w.seconds();
  if (check == kChoice) {
    std::vector<ChoiceCase> all = w.limits(0);
    for (ChoiceCase& c : all) c.cluster.memory += 7;
    return all;
  }
  if (check == kExact) return w.limits(1);
  std::vector<ChoiceCase> all = w.numbers(check == kMixed, check == kMicro ? w.between(2, 5) : 1);
  if (check != kPeak && check != kSent && check != kMicro) return all;
  for (const ChoiceCase& c : w.numbers(true, check == kMicro ? w.between(2, 5) : 1))
    all.push_back(c);
  return all;
}

LibraryNumbers library_numbers(const Training& training, int stage) {
  std::vector<Parameter> parameters(training.units.size());
  std::vector<Unit> units(training.units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    parameters[i].shape = {training.units[i]};
    units[i] = {.name = str("unit ", i), .parameters = {&parameters[i]}, .index = int(i)};
  }
  const Prediction p = predict({.options = {.stage = kStages[stage],
                                            .accumulation = training.micro_batches,
                                            .precision = training.mixed ? Dtype::bf16 : Dtype::f32},
                                .ranks = training.ranks,
                                .units = padded_unit_sizes(units, training.ranks)});
  LibraryNumbers numbers;
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state,
                              MemoryUse::master_weights}) {
    numbers.kept += p.device.rest_of(use);
    numbers.peak += p.device.peak_of(use);
  }
  for (const auto& [key, row] : p.traffic.rows())
    if (key.purpose == Purpose::gradient || key.purpose == Purpose::parameter)
      numbers.sent += row.sent_bytes();
  return numbers;
}

}  // namespace zl::exercises::choose_stage_checks
