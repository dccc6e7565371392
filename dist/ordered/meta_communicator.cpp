#include "dist/ordered/meta_communicator.h"

#include <utility>

#include "dist/ordered/ordered_reduction.h"
#include "tensor/error.h"

namespace zl {
namespace {

class MetaCommunicator final : public Communicator {
 public:
  MetaCommunicator(int rank, int size, EventStream& events, bool scratch, bool in_flight)
      : Communicator(rank, size, events),
        scratch_(scratch),
        in_flight_(in_flight),
        issued_(std::make_shared<Issued>()) {}
  MetaCommunicator(MetaCommunicator& all, const Split& split)
      : Communicator(all, split),
        scratch_(all.scratch_),
        in_flight_(all.in_flight_),
        issued_(all.issued_) {}

  void begin_group() override { issued_->in_group = true; }
  void end_group() override {
    issued_->in_group = false;
    for (const auto& [communicator, call] : std::exchange(issued_->calls, {}))
      communicator->all_ranks_came(call);
  }

  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override {
    return scratch_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
  }

 private:
  // Calls of a group, which other communicators of the run may make too. They meet at its end.
  struct Issued {
    bool in_group = false;
    std::vector<std::pair<MetaCommunicator*, Call>> calls;
  };

  Work issue(const Call& call, std::function<void()> finish = {}) {
    if (in_flight_ && issued_->in_group)
      issued_->calls.emplace_back(this, call);
    else
      all_ranks_came(call);
    if (in_flight_ && !finish) finish = [] {};
    return finish ? Work(std::move(finish)) : Work();
  }
  Work reduce(const Tensor& tensor, const Call& call) {
    const int64_t bytes = reduction_scratch_bytes(call.count, call.dtype);
    if (bytes == 0) return issue(call);
    Tensor scratch = Tensor::empty(tensor.memory(), MemoryUse::communication,
                                   {bytes / size_of(call.dtype)}, call.dtype);
    return issue(call, [held = std::move(scratch)]() mutable { held = {}; });
  }
  Work do_all_reduce(const Tensor& inout, const Tensor&, const Call& call) override {
    return reduce(inout, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor&, const Call& call) override {
    return reduce(full, call);
  }
  Work do_all_gather(const Tensor&, const Call& call) override { return issue(call); }
  Work do_broadcast(const Tensor&, const Call& call) override { return issue(call); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call& call) override {
    return issue(call);
  }
  Work do_barrier(const Call& call) override { return issue(call); }
  Work do_point_to_point(const Tensor&, const Call& call) override { return issue(call); }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call&) override {
    return std::vector(size_t(size()), text);
  }
  std::unique_ptr<Communicator> do_split(const Split& split) override {
    return std::make_unique<MetaCommunicator>(*this, split);
  }

  const bool scratch_;
  const bool in_flight_;
  const std::shared_ptr<Issued> issued_;
};

}  // namespace

std::unique_ptr<Communicator> meta_communicator(int rank, int size, EventStream& events,
                                                bool scratch, bool in_flight) {
  require(size >= 1, "a dry run needs at least 1 rank, not ", size);
  require(rank >= 0 && rank < size, "rank ", rank, " is out of range: there are ", size,
          " ranks, 0 to ", size - 1);
  return std::make_unique<MetaCommunicator>(rank, size, events, scratch, in_flight);
}

}  // namespace zl
