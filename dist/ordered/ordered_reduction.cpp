#include "dist/ordered/ordered_reduction.h"

#include <algorithm>
#include <set>

#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

int64_t chunk_length(int64_t count, int64_t chunk, int rank) {
  return std::clamp<int64_t>(count - rank * chunk, 0, chunk);
}

Tensor scratch_for(const Tensor& tensor, int rank, int ranks) {
  const int64_t count = ordered_scratch(tensor.numel(), rank, ranks);
  if (count == 0) return {};
  return Tensor::empty(tensor.memory(), MemoryUse::communication, {count}, tensor.dtype());
}

bool only_shard_of_start(const Call& call, bool has_start) {
  return has_start && call.kind == Collective::reduce_scatter;
}

// As if on one machine, unless N divides the count and a chain sends fewer bytes between machines.
RankTopology chained(const Call& call, bool has_start, RankTopology ranks) {
  const int64_t wider = size_of(ordered_sum_type(call.dtype)) / size_of(call.dtype);
  if (call.count == 0 || call.count % ranks.size != 0 ||
      ranks.machines() * wider + 1 + only_shard_of_start(call, has_start) >= ranks.size)
    ranks.per_machine = ranks.size;
  return ranks;
}

}  // namespace

int ranks_per_machine(const std::vector<std::string>& machine_of_rank) {
  const size_t size = machine_of_rank.size(),
               first = size_t(std::ranges::count(machine_of_rank, machine_of_rank[0]));
  const std::set<std::string> machines(machine_of_rank.begin(), machine_of_rank.end());
  bool regular = machines.size() * first == size;
  for (size_t r = 0; r < size; ++r)
    regular = regular && machine_of_rank[r] == machine_of_rank[r / first * first];
  return int(regular ? first : size);
}

int64_t ordered_chunk(int64_t count, int ranks) {
  const int64_t line = 64;  // [n] no two chunks share a cache line
  return count % ranks == 0 ? count / ranks
                            : ((count + ranks - 1) / ranks + line - 1) / line * line;
}

int64_t ordered_scratch(int64_t count, int rank, int ranks) {
  return (ranks - 1) * chunk_length(count, ordered_chunk(count, ranks), rank);
}

OrderedReduction::OrderedReduction(const Tensor& tensor, const Tensor& start, const Call& call,
                                   RankTopology ranks)
    : tensor_(tensor),
      start_(start),
      call_(call),
      ranks_(chained(call, start.defined(), ranks)),
      chunk_(ordered_chunk(call.count, ranks.size)),
      own_(length_of(ranks.rank)),
      sum_type_(ordered_sum_type(call.dtype)),
      start_moves_(ranks_.machines() > 1 && only_shard_of_start(call, start.defined())),
      scratch_(scratch_for(tensor, ranks.rank, ranks.size)) {
  if (!scratch_.defined()) return;
  const int64_t sum = chunk_ * size_of(sum_type_), value = own_ * size_of(call.dtype);
  sum_to_send_ = static_cast<char*>(scratch_.address());  // sums first: they are aligned
  received_ = sum_to_send_ + (last() ? 0 : sum);
  values_ = received_ + (!first() ? sum : start_moves_ ? value : 0);
  const int64_t used = values_ + (ranks_.per_machine - 1) * value - sum_to_send_;
  require(used <= scratch_.bytes(), "a chain has too little scratch memory");
}

char* OrderedReduction::at(const Tensor& tensor, int64_t element) const {
  return static_cast<char*>(tensor.address()) + element * size_of(call_.dtype);
}

int64_t OrderedReduction::length_of(int rank) const {
  return chunk_length(call_.count, chunk_, rank);
}

char* OrderedReduction::received_from(int local) const {
  return values_ + (local < local_rank() ? local : local - 1) * own_ * size_of(call_.dtype);
}

int OrderedReduction::shard_in(int step) const {
  const int machine = step - ranks_.machine();
  return machine >= 0 && machine < ranks_.machines() ? machine * ranks_.per_machine + local_rank()
                                                     : -1;
}

void OrderedReduction::exchange(int step, ChunkTransport& transport) const {
  const auto [rank, size, here] = ranks_;
  const int adds = shard_in(step), local = local_rank(), first_here = rank - local;
  for (int i = 1; i < here && adds >= 0; ++i) {  // from the next rank on: not all send to the same
    const int to = (local + i) % here, from = (local + here - i) % here, shard = adds - local + to;
    if (length_of(shard) > 0)
      transport.send(chunk_of(shard), length_of(shard), call_.dtype, first_here + to);
    if (own_ > 0) transport.receive(received_from(from), own_, call_.dtype, first_here + from);
  }
  if (adds >= 0 && !first()) transport.receive(received_, chunk_, sum_type_, rank - here);
  if (start_moves_) exchange_start(step, transport);
  if (step > 0 && shard_in(step - 1) >= 0) send_sum(shard_in(step - 1), transport);
  // The last machine has added this rank's shard.
  if (!last() && step == ranks_.machine() + ranks_.machines())
    transport.receive(chunk_of(rank), chunk_, call_.dtype, size - here + local);
}

// Machine 0 begins the shard of machine m in step m.
void OrderedReduction::exchange_start(int step, ChunkTransport& transport) const {
  if (step == ranks_.machine() && !first())
    transport.send(at(start_, 0), chunk_, call_.dtype, local_rank());
  if (first() && step > 0 && step < ranks_.machines())
    transport.receive(received_, chunk_, call_.dtype, shard_in(step));
}

void OrderedReduction::send_sum(int shard, ChunkTransport& transport) const {
  if (!last())
    transport.send(sum_to_send_, chunk_, sum_type_, ranks_.rank + ranks_.per_machine);
  else if (shard != ranks_.rank)
    transport.send(chunk_of(shard), chunk_, call_.dtype, shard);
}

char* OrderedReduction::start_of(int shard) const {
  if (start_moves_ && shard != ranks_.rank) return received_;
  return at(start_, call_.kind == Collective::all_reduce ? shard * chunk_ : 0);
}

void OrderedReduction::add(int step) const {
  const int shard = shard_in(step);
  if (shard < 0 || own_ == 0) return;
  std::vector<char*> buffers;
  if (!first()) buffers.push_back(received_);
  if (first() && start_.defined()) buffers.push_back(start_of(shard));
  for (int local = 0; local < ranks_.per_machine; ++local)
    buffers.push_back(local == local_rank() ? chunk_of(shard) : received_from(local));
  char* const result = last() ? chunk_of(shard) : sum_to_send_;
  tensor_.backend().ordered_sum({.buffers = buffers,
                                 .results = {&result, 1},
                                 .end = own_,
                                 .dtype = call_.dtype,
                                 .mean = last() && call_.reduction == Reduction::mean,
                                 .added = ranks_.size + start_.defined(),
                                 .continues = !first(),
                                 .unfinished = !last()});
}

void OrderedReduction::gather_sums(ChunkTransport& transport) const {
  const auto [rank, size, per_machine] = ranks_;
  if (chunk_ * size == call_.count)
    return transport.all_gather(chunk_of(rank), at(tensor_, 0), chunk_, call_.dtype);
  const int64_t own = length_of(rank);
  for (int i = 1; i < size; ++i) {  // all_gather takes the same count from all ranks
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    if (own > 0) transport.send(chunk_of(rank), own, call_.dtype, to);
    if (length_of(from) > 0) transport.receive(chunk_of(from), length_of(from), call_.dtype, from);
  }
}

}  // namespace zl
