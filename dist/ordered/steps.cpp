#include "dist/ordered/steps.h"

#include <memory>

#include "tensor/backend.h"

namespace zl {

Steps ordered_reduction_steps(const Tensor& tensor, const Tensor& start, const Call& call,
                              RankTopology ranks) {
  const auto sum = std::make_shared<const OrderedReduction>(tensor, start, call, ranks);
  Steps steps;
  for (int step = 0; step < sum->steps(); ++step)
    steps.push_back(
        {[=](ChunkTransport& to) { sum->exchange(step, to); }, [=] { sum->add(step); }});
  if (call.kind == Collective::all_reduce)
    steps.push_back({[=](ChunkTransport& to) { sum->gather_sums(to); }});
  return steps;
}

Steps all_gather_steps(const Tensor& full, RankTopology ranks) {
  const int64_t shard = full.numel() / ranks.size;
  return {{[=](ChunkTransport& to) {
    to.all_gather(address_at(full, ranks.rank * shard), address_at(full, 0), shard, full.dtype());
  }}};
}

Steps all_to_all_steps(const Tensor& from, const Tensor& to, RankTopology ranks) {
  const int rank = ranks.rank, size = ranks.size;
  const int64_t shard = from.numel() / size;
  const auto exchange = [=](ChunkTransport& transport) {
    for (int i = 1; i < size; ++i) {  // from the next rank on: not all send to the same
      const int next = (rank + i) % size, last = (rank + size - i) % size;
      transport.receive(address_at(to, last * shard), shard, to.dtype(), last);
      transport.send(address_at(from, next * shard), shard, from.dtype(), next);
    }
  };
  const auto keep = [=] {
    from.backend().move_bytes(address_at(from, rank * shard), address_at(to, rank * shard),
                              shard * size_of(from.dtype()));
  };
  return {{exchange, keep}};
}

}  // namespace zl
