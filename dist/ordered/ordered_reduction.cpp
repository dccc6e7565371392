#include "dist/ordered/ordered_reduction.h"

#include <algorithm>
#include <span>
#include <vector>

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

}  // namespace

int64_t ordered_chunk(int64_t count, int ranks) {
  const int64_t line = 64;  // [n] no two chunks share a cache line
  return count % ranks == 0 ? count / ranks
                            : ((count + ranks - 1) / ranks + line - 1) / line * line;
}

int64_t ordered_scratch(int64_t count, int rank, int ranks) {
  return (ranks - 1) * chunk_length(count, ordered_chunk(count, ranks), rank);
}

OrderedReduction::OrderedReduction(const Tensor& tensor, const Tensor& start, const Call& call,
                                   int rank, int ranks)
    : tensor_(tensor),
      start_(start),
      call_(call),
      rank_(rank),
      ranks_(ranks),
      chunk_(ordered_chunk(call.count, ranks)),
      own_(chunk_length(call.count, chunk_, rank)),
      scratch_(scratch_for(tensor, rank, ranks)) {}

char* OrderedReduction::at(const Tensor& tensor, int64_t element) const {
  return static_cast<char*>(tensor.address()) + element * size_of(call_.dtype);
}

char* OrderedReduction::received_from(int rank) const {
  return at(scratch_, (rank < rank_ ? rank : rank - 1) * own_);
}

int64_t OrderedReduction::length_of(int rank) const {
  return chunk_length(call_.count, chunk_, rank);
}

void OrderedReduction::send_chunks(ChunkTransport& transport) const {
  for (int i = 1; i < ranks_; ++i) {  // from the next rank on, so that not all send to the same one
    const int to = (rank_ + i) % ranks_, from = (rank_ + ranks_ - i) % ranks_;
    if (length_of(to) > 0) transport.send(at(tensor_, to * chunk_), length_of(to), to);
    if (own_ > 0) transport.receive(received_from(from), own_, from);
  }
}

void OrderedReduction::add() const {
  std::vector<char*> buffers;
  if (start_.defined())
    buffers.push_back(at(start_, call_.kind == Collective::all_reduce ? rank_ * chunk_ : 0));
  for (int r = 0; r < ranks_; ++r)
    buffers.push_back(r == rank_ ? at(tensor_, rank_ * chunk_) : received_from(r));
  const std::span<char* const> all = buffers;
  char* const result = at(tensor_, rank_ * chunk_);
  tensor_.backend().ordered_sum(
      {all, {&result, 1}, 0, own_, call_.dtype, call_.reduction == Reduction::mean});
}

void OrderedReduction::gather_sums(ChunkTransport& transport) const {
  if (chunk_ * ranks_ == call_.count)
    return transport.all_gather(at(tensor_, rank_ * chunk_), at(tensor_, 0), chunk_);
  for (int i = 1; i < ranks_; ++i) {  // all_gather takes the same count from all ranks
    const int to = (rank_ + i) % ranks_, from = (rank_ + ranks_ - i) % ranks_;
    if (own_ > 0) transport.send(at(tensor_, rank_ * chunk_), own_, to);
    if (length_of(from) > 0) transport.receive(at(tensor_, from * chunk_), length_of(from), from);
  }
}

}  // namespace zl
