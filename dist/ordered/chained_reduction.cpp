#include "dist/ordered/chained_reduction.h"

#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

bool start_moves(const Call& call, bool has_start) {
  return has_start && call.kind == Collective::reduce_scatter;
}

}  // namespace

bool sends_less_chained(const Call& call, bool has_start, RankTopology ranks) {
  const int64_t wider = size_of(ordered_sum_type(call.dtype)) / size_of(call.dtype);
  return ranks.machines() > 1 && call.count % ranks.size == 0 &&
         ranks.machines() * wider + 1 + start_moves(call, has_start) < ranks.size;
}

ChainedReduction::ChainedReduction(const Tensor& tensor, const Tensor& start, const Call& call,
                                   RankTopology ranks)
    : OrderedReduction(tensor, start, call, ranks),
      machines_(ranks.machines()),
      machine_(ranks.machine()),
      local_rank_(ranks.rank % ranks.per_machine),
      accumulates_in_(ordered_sum_type(call.dtype)),
      start_moves_(start_moves(call, start.defined())) {
  if (call.count == 0) return;
  const int64_t sum = chunk_ * size_of(accumulates_in_), value = chunk_ * size_of(call.dtype);
  sum_to_send_ = static_cast<char*>(scratch_.address());  // sums first: they are aligned
  received_ = sum_to_send_ + (last() ? 0 : sum);
  values_ = received_ + (!first() ? sum : start_moves_ ? value : 0);
  const int64_t used = values_ + (ranks.per_machine - 1) * value - sum_to_send_;
  require(used <= scratch_.numel() * size_of(call.dtype), "a chain has too little scratch memory");
}

int ChainedReduction::shard_in(int step) const {
  const int machine = step - machine_;
  return machine >= 0 && machine < machines_ ? machine : -1;
}

char* ChainedReduction::received_from(int local_rank) const {
  return values_ +
         (local_rank < local_rank_ ? local_rank : local_rank - 1) * chunk_ * size_of(call_.dtype);
}

void ChainedReduction::exchange(int step, ChunkTransport& transport) const {
  const auto [rank, size, here] = ranks_;
  const Dtype dtype = call_.dtype;
  const int adds = shard_in(step), first_here = machine_ * here;
  if (adds >= 0) {
    for (int i = 1; i < here; ++i) {
      const int to = (local_rank_ + i) % here, from = (local_rank_ + here - i) % here;
      transport.send(at(tensor_, (adds * here + to) * chunk_), chunk_, dtype, first_here + to);
      transport.receive(received_from(from), chunk_, dtype, first_here + from);
    }
    if (!first()) transport.receive(received_, chunk_, accumulates_in_, rank - here);
  }
  if (start_moves_) exchange_start(step, transport);
  if (step > 0 && shard_in(step - 1) >= 0) send_sum(shard_in(step - 1), transport);
  if (!last() && step == machine_ + machines_)  // the last machine has added this rank's shard
    transport.receive(at(tensor_, rank * chunk_), chunk_, dtype, size - here + local_rank_);
}

// Machine 0 begins the shard of machine m in step m.
void ChainedReduction::exchange_start(int step, ChunkTransport& transport) const {
  if (step == machine_ && !first()) transport.send(at(start_, 0), chunk_, call_.dtype, local_rank_);
  if (first() && step > 0 && step < machines_)
    transport.receive(received_, chunk_, call_.dtype, step * ranks_.per_machine + local_rank_);
}

void ChainedReduction::send_sum(int machine, ChunkTransport& transport) const {
  if (!last())
    transport.send(sum_to_send_, chunk_, accumulates_in_, ranks_.rank + ranks_.per_machine);
  else if (machine != machine_)
    transport.send(shard_of(machine), chunk_, call_.dtype,
                   machine * ranks_.per_machine + local_rank_);
}

char* ChainedReduction::start_of(int machine) const {
  if (start_moves_) return machine == 0 ? at(start_, 0) : received_;
  return at(start_, (machine * ranks_.per_machine + local_rank_) * chunk_);
}

void ChainedReduction::add(int step) const {
  const int machine = shard_in(step);
  if (machine < 0) return;
  std::vector<char*> buffers;
  if (!first()) buffers.push_back(received_);
  if (first() && start_.defined()) buffers.push_back(start_of(machine));
  for (int local_rank = 0; local_rank < ranks_.per_machine; ++local_rank)
    buffers.push_back(local_rank == local_rank_ ? shard_of(machine) : received_from(local_rank));
  char* const result = last() ? shard_of(machine) : sum_to_send_;
  tensor_.backend().ordered_sum({.buffers = buffers,
                                 .results = {&result, 1},
                                 .end = chunk_,
                                 .dtype = call_.dtype,
                                 .mean = last() && call_.reduction == Reduction::mean,
                                 .added = ranks_.size + start_.defined(),
                                 .continues = !first(),
                                 .unfinished = !last()});
}

}  // namespace zl
