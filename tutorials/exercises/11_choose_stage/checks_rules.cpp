// The numbers by the rules of choose_stage.h, and with one mistake.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutorials/exercises/11_choose_stage/numbers.h"

namespace zl::exercises::choose_stage_checks {

const std::vector<Mistake> kMistakes = {
    {Asked::kept, Slip::unpadded, "no padding: each unit takes a multiple of 16 * ranks elements"},
    {Asked::kept, Slip::padded_to_ranks,
     "units are padded to a multiple of the ranks, not of 16 elements for each rank"},
    {Asked::kept, Slip::padded_to_16,
     "units are padded to 16 elements in all, not to 16 for each rank"},
    {Asked::kept, Slip::padded_together,
     "the sum of the units is padded: each unit is cut into shards, so each is padded"},
    {Asked::kept, Slip::twelve_in_fp32,
     "the optimizer takes 12 bytes per element in fp32: the moments are 8, and parameters that "
     "are fp32 need no copy in fp32"},
    {Asked::kept, Slip::eight_in_mixed,
     "the optimizer's fp32 copy of the parameters is missing in mixed precision: 4 more bytes"},
    {Asked::kept, Slip::all_fp32,
     "parameters and gradients take 4 bytes in mixed precision, not 2"},
    {Asked::kept, Slip::full_gradient, "zero2 and zero3 keep full gradients: they keep a shard"},
    {Asked::kept, Slip::full_parameter, "zero3 keeps full parameters: it keeps a shard"},
    {Asked::kept, Slip::gradient_shard_in_zero1,
     "zero1 keeps a shard of the gradients: it shards the optimizer state alone"},
    {Asked::peak, Slip::kept_as_peak,
     "the peak is what is kept: zero2 and zero3 have full gradients in the backward pass, and "
     "zero3 has full parameters"},
    {Asked::peak, Slip::no_full_gradient,
     "full gradients are missing at the peak: a unit's gradient is full until it is reduced"},
    {Asked::peak, Slip::no_full_gradient_in_zero2,
     "full gradients are missing at the peak of zero2: backward fills them there as in zero3"},
    {Asked::peak, Slip::no_full_parameter,
     "full parameters are missing at the peak of zero3: a unit that runs is unsharded"},
    {Asked::peak, Slip::without_root,
     "root is missing at the peak: it runs around the blocks, so it is full beside one of them"},
    {Asked::peak, Slip::root_alone,
     "only root is full at the peak: one block, the largest, is full beside it"},
    {Asked::peak, Slip::all_full,
     "all units are full at the peak: blocks are reduced and resharded one after another"},
    {Asked::sent, Slip::no_ring_factor,
     "the ring factor is missing: of N shards a rank sends N-1 in each pass around the ring"},
    {Asked::sent, Slip::of_all_ranks, "the bytes are those of all ranks together, not of one"},
    {Asked::sent, Slip::one_pass,
     "the all-reduce of ddp is one pass around the ring: it is two, as reduce-scatter and "
     "all-gather"},
    {Asked::sent, Slip::no_gather,
     "zero1 and zero2 do not gather the parameters that were updated: each rank updates a shard"},
    {Asked::sent, Slip::root_twice,
     "root is gathered twice in zero3: it stays from forward to backward, only blocks are gathered "
     "again"},
    {Asked::sent, Slip::blocks_once,
     "blocks are gathered once in zero3: they are resharded after forward, and gathered again for "
     "backward"},
    {Asked::sent, Slip::zero2_once,
     "zero2 reduces once per step: it has no full gradients to add micro-batches to, so it reduces "
     "each"},
    {Asked::sent, Slip::zero3_once,
     "zero3 sends as if the step had one micro-batch: each gathers parameters and reduces"},
    {Asked::sent, Slip::always_reduced,
     "ddp and zero1 reduce every micro-batch: they add up full gradients, and reduce once"},
    {Asked::seconds, Slip::node_link,
     "the rate is always that in a node: a ring over several nodes is as slow as the network"},
    {Asked::seconds, Slip::network_link,
     "the rate is always that of the network: ranks of one node do not use it"},
    {Asked::seconds, Slip::one_micro_batch, "the computation is that of one micro-batch"},
    {Asked::seconds, Slip::two_operations,
     "the computation is that of the forward pass, 2 operations per parameter and token; backward "
     "takes 4"},
    {Asked::seconds, Slip::overlapped,
     "the longer of computation and communication is taken: here one follows the other"},
    {Asked::seconds, Slip::padded_operations, "padding is computed: no token uses it"},
    {Asked::choice, Slip::below_limit,
     "a stage whose peak is exactly the memory is refused: it fits"},
    {Asked::choice, Slip::smallest,
     "the stage that takes least memory is chosen: the fastest of those that fit is asked for"},
    {Asked::choice, Slip::last_of_equal,
     "of stages that take the same time the last one is chosen, not the earliest"},
    {Asked::choice, Slip::by_kept,
     "a stage is chosen that fits between steps: at its peak it does not"},
    {Asked::choice, Slip::ignores_memory, "the fastest stage is chosen, whether it fits or not"},
    {Asked::choice, Slip::zero3_if_none, "zero3 is chosen where no stage fits"},
};

namespace {

class Numbers {
 public:
  Numbers(const ChoiceCase& c, int stage, Slip slip)
      : c_(c), t_(c.training), stage_(stage), slip_(slip) {
    for (const int64_t n : t_.units) units_.push_back(padded(n));
    full_ = std::accumulate(units_.begin(), units_.end(), 0.0);
    if (is(Slip::padded_together))
      full_ = padded(std::accumulate(t_.units.begin(), t_.units.end(), int64_t(0)));
  }

  double kept() const {
    const double shard = std::floor(full_ / t_.ranks);  // as int64_t divides without padding
    const bool gradients = stage_ >= (is(Slip::gradient_shard_in_zero1) ? 1 : 2);
    return (stage_ >= 3 && !is(Slip::full_parameter) ? shard : full_) * element() +
           (gradients && !is(Slip::full_gradient) ? shard : full_) * element() +
           (stage_ >= 1 ? shard : full_) * optimizer();
  }

  double peak() const {
    double most = 0;
    for (size_t i = 1; i < units_.size(); ++i) most = std::max(most, units_[i]);
    if (is(Slip::root_alone)) most = 0;
    if (!is(Slip::without_root)) most += units_[0];
    if (is(Slip::all_full)) most = full_;
    const bool gradient = stage_ >= (is(Slip::no_full_gradient_in_zero2) ? 3 : 2) &&
                          !is(Slip::no_full_gradient) && !is(Slip::kept_as_peak);
    const bool parameter = stage_ == 3 && !is(Slip::no_full_parameter) && !is(Slip::kept_as_peak);
    return kept() + ((gradient ? most : 0) + (parameter ? most : 0)) * element();
  }

  double sent() const {
    const double factor = is(Slip::no_ring_factor) ? 1
                          : is(Slip::of_all_ranks) ? t_.ranks - 1
                                                   : double(t_.ranks - 1) / t_.ranks;
    return factor * passes() * element();
  }

  double seconds() const {
    double parameters = 0;
    for (const int64_t n : t_.units)
      parameters += is(Slip::padded_operations) ? padded(n) : double(n);
    const double operations = (is(Slip::two_operations) ? 2 : 6) * parameters * double(t_.tokens) *
                              (is(Slip::one_micro_batch) ? 1 : double(t_.micro_batches));
    const bool one_node = t_.ranks <= c_.cluster.gpus_per_node;
    const bool in_node = (one_node || is(Slip::node_link)) && !is(Slip::network_link);
    const double computing = operations / c_.cluster.rate,
                 sending =
                     sent() / (in_node ? c_.cluster.node_bandwidth : c_.cluster.network_bandwidth);
    return is(Slip::overlapped) ? std::max(computing, sending) : computing + sending;
  }

 private:
  bool is(Slip slip) const { return slip_ == slip; }
  double element() const { return t_.mixed && !is(Slip::all_fp32) ? 2 : 4; }
  double optimizer() const {
    return is(Slip::twelve_in_fp32) || (t_.mixed && !is(Slip::eight_in_mixed)) ? 12 : 8;
  }
  double padded(int64_t n) const {
    const int64_t multiple = is(Slip::unpadded)          ? 1
                             : is(Slip::padded_to_ranks) ? t_.ranks
                             : is(Slip::padded_to_16)    ? 16
                                                         : 16 * t_.ranks;
    return double((n + multiple - 1) / multiple * multiple);
  }
  // [n] that go around the ring once.
  double passes() const {
    const double each = double(t_.micro_batches);
    const double reductions = is(Slip::always_reduced) ? each : 1;
    if (stage_ == 0) return (is(Slip::one_pass) ? 1 : 2) * reductions * full_;
    const double gathered = is(Slip::no_gather) ? 0 : full_;
    if (stage_ == 1) return reductions * full_ + gathered;
    if (stage_ == 2) return (is(Slip::zero2_once) ? 1 : each) * full_ + gathered;
    const double again = is(Slip::root_twice)    ? full_
                         : is(Slip::blocks_once) ? 0
                                                 : full_ - units_[0];
    return (is(Slip::zero3_once) ? 1 : each) * (2 * full_ + again);
  }

  const ChoiceCase& c_;
  const Training& t_;
  int stage_;
  Slip slip_;
  std::vector<double> units_;
  double full_ = 0;
};

int choice(const ChoiceCase& c, Slip slip) {
  int best = slip == Slip::zero3_if_none ? 3 : -1;
  double least = 0;
  bool found = false;
  for (int stage = 0; stage < 4; ++stage) {
    const Numbers numbers(c, stage, Slip::none);
    const double memory = double(c.cluster.memory),
                 needed = slip == Slip::by_kept ? numbers.kept() : numbers.peak();
    const bool fits = slip == Slip::below_limit ? needed < memory : needed <= memory;
    if (!fits && slip != Slip::ignores_memory) continue;
    const double cost = slip == Slip::smallest ? numbers.peak() : numbers.seconds();
    const bool better = slip == Slip::last_of_equal ? cost <= least : cost < least;
    if (found && !better) continue;
    found = true;
    best = stage;
    least = cost;
  }
  return best;
}

}  // namespace

double number(Asked asked, const ChoiceCase& c, int stage, Slip slip) {
  const Numbers numbers(c, stage, slip);
  switch (asked) {
    case Asked::kept: return numbers.kept();
    case Asked::peak: return numbers.peak();
    case Asked::sent: return numbers.sent();
    case Asked::seconds: return numbers.seconds();
    case Asked::choice: return choice(c, slip);
  }
  return 0;
}

}  // namespace zl::exercises::choose_stage_checks
