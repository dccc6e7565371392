#include "dist/meta_communicator.h"

#include "dist/ordered/ordered_reduction.h"
#include "tensor/error.h"

namespace zl {
namespace {

class MetaCommunicator final : public Communicator {
 public:
  MetaCommunicator(int rank, int size, EventStream& events, bool scratch)
      : Communicator(rank, size, events), scratch_(scratch) {}
  MetaCommunicator(MetaCommunicator& all, const Split& split)
      : Communicator(all, split), scratch_(all.scratch_) {}

  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override {
    return scratch_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
  }

 private:
  Work complete(const Call& call) {
    all_ranks_came(call);
    return {};
  }
  Work reduce(const Tensor& tensor, const Call& call) {
    const int64_t bytes = reduction_scratch_bytes(call.count, call.dtype);
    if (bytes == 0) return complete(call);
    Tensor scratch = Tensor::empty(tensor.memory(), MemoryUse::communication,
                                   {bytes / size_of(call.dtype)}, call.dtype);
    all_ranks_came(call);
    return Work([held = std::move(scratch)]() mutable { held = {}; });
  }
  Work do_all_reduce(const Tensor& inout, const Tensor&, const Call& call) override {
    return reduce(inout, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor&, const Call& call) override {
    return reduce(full, call);
  }
  Work do_all_gather(const Tensor&, const Call& call) override { return complete(call); }
  Work do_broadcast(const Tensor&, const Call& call) override { return complete(call); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call& call) override {
    return complete(call);
  }
  Work do_barrier(const Call& call) override { return complete(call); }
  Work do_send(const Tensor&, const Call& call) override { return complete(call); }
  Work do_receive(const Tensor&, const Call& call) override { return complete(call); }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call&) override {
    return std::vector(size_t(size()), text);
  }
  std::unique_ptr<Communicator> do_split(const Split& split) override {
    return std::make_unique<MetaCommunicator>(*this, split);
  }

  const bool scratch_;
};

}  // namespace

std::unique_ptr<Communicator> meta_communicator(int rank, int size, EventStream& events,
                                                bool scratch) {
  require(size >= 1, "a dry run needs at least 1 rank, not ", size);
  require(rank >= 0 && rank < size, "rank ", rank, " is out of range: there are ", size,
          " ranks, 0 to ", size - 1);
  return std::make_unique<MetaCommunicator>(rank, size, events, scratch);
}

}  // namespace zl
