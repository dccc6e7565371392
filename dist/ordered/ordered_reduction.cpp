#include "dist/ordered/ordered_reduction.h"

#include <algorithm>
#include <set>
#include <span>

#include "dist/ordered/chained_reduction.h"
#include "tensor/backend.h"

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

// One exchange between all ranks.
class DirectReduction final : public OrderedReduction {
 public:
  DirectReduction(const Tensor& tensor, const Tensor& start, const Call& call, RankTopology ranks)
      : OrderedReduction(tensor, start, call, ranks), own_(length_of(ranks.rank)) {}
  int steps() const override { return 1; }
  void exchange(int step, ChunkTransport& transport) const override;
  void add(int step) const override;

 private:
  char* received_from(int rank) const {
    return at(scratch_, (rank < ranks_.rank ? rank : rank - 1) * own_);
  }

  const int64_t own_;  // [n]
};

void DirectReduction::exchange(int, ChunkTransport& transport) const {
  const auto [rank, size, per_machine] = ranks_;
  for (int i = 1; i < size; ++i) {  // from the next rank on, so that not all send to the same one
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    if (length_of(to) > 0) transport.send(at(tensor_, to * chunk_), length_of(to), call_.dtype, to);
    if (own_ > 0) transport.receive(received_from(from), own_, call_.dtype, from);
  }
}

void DirectReduction::add(int) const {
  if (own_ == 0) return;
  const int rank = ranks_.rank;
  std::vector<char*> buffers;
  if (start_.defined())
    buffers.push_back(at(start_, call_.kind == Collective::all_reduce ? rank * chunk_ : 0));
  for (int r = 0; r < ranks_.size; ++r)
    buffers.push_back(r == rank ? at(tensor_, rank * chunk_) : received_from(r));
  const std::span<char* const> all = buffers;
  char* const result = at(tensor_, rank * chunk_);
  tensor_.backend().ordered_sum(
      {all, {&result, 1}, 0, own_, call_.dtype, call_.reduction == Reduction::mean});
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
      ranks_(ranks),
      chunk_(ordered_chunk(call.count, ranks.size)),
      scratch_(scratch_for(tensor, ranks.rank, ranks.size)) {}

char* OrderedReduction::at(const Tensor& tensor, int64_t element) const {
  return static_cast<char*>(tensor.address()) + element * size_of(call_.dtype);
}

int64_t OrderedReduction::length_of(int rank) const {
  return chunk_length(call_.count, chunk_, rank);
}

void OrderedReduction::gather_sums(ChunkTransport& transport) const {
  const auto [rank, size, per_machine] = ranks_;
  if (chunk_ * size == call_.count)
    return transport.all_gather(at(tensor_, rank * chunk_), at(tensor_, 0), chunk_, call_.dtype);
  const int64_t own = length_of(rank);
  for (int i = 1; i < size; ++i) {  // all_gather takes the same count from all ranks
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    if (own > 0) transport.send(at(tensor_, rank * chunk_), own, call_.dtype, to);
    if (length_of(from) > 0)
      transport.receive(at(tensor_, from * chunk_), length_of(from), call_.dtype, from);
  }
}

std::unique_ptr<OrderedReduction> ordered_reduction(const Tensor& tensor, const Tensor& start,
                                                    const Call& call, RankTopology ranks) {
  if (sends_less_chained(call, start.defined(), ranks))
    return std::make_unique<ChainedReduction>(tensor, start, call, ranks);
  return std::make_unique<DirectReduction>(tensor, start, call, ranks);
}

}  // namespace zl
