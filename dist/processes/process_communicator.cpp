#include "dist/processes/process_communicator.h"

#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {

int64_t ProcessCommunicator::reduction_scratch_bytes(int64_t count, Dtype dtype) const {
  return ordered_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
}

void ProcessCommunicator::require_no_failure(std::string_view doing) const {
  if (others_.failed()) others_.throw_failure({.kind = Collective::barrier, .name = doing});
}

Work ProcessCommunicator::reduction(const Tensor& tensor, const Tensor& start, const Call& call) {
  if (ordered_) return issue(tensor, call, ordered_reduction_steps(tensor, start, call, ranks_));
  require(!start.defined(), name(call.kind), " '", call.name,
          "': a sum that continues from a start needs ordered sums, and here ", transport_,
          " adds");
  Step step = unordered_sum(tensor, call);
  if (call.reduction == Reduction::mean)
    step.kernel = [=, sum = step.kernel, ranks = size(), rank = rank()] {
      if (sum) sum();
      const bool all = call.kind == Collective::all_reduce;
      const int64_t count = all ? call.count : call.count / ranks;
      char* const sums = address_at(tensor, all ? 0 : rank * count);
      tensor.backend().ordered_sum({{&sums, 1}, {&sums, 1}, 0, count, call.dtype, true, ranks});
    };
  return issue(tensor, call, {step});
}

Work ProcessCommunicator::do_all_reduce(const Tensor& inout, const Tensor& start,
                                        const Call& call) {
  return reduction(inout, start, call);
}
Work ProcessCommunicator::do_reduce_scatter(const Tensor& full, const Tensor& start,
                                            const Call& call) {
  return reduction(full, start, call);
}
Work ProcessCommunicator::do_all_gather(const Tensor& full, const Call& call) {
  return issue(full, call, all_gather_steps(full, ranks_));
}
Work ProcessCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  return issue(from, call, all_to_all_steps(from, to, ranks_));
}
Work ProcessCommunicator::do_barrier(const Call& call) {
  others_.set_state(others_.require_same_call(call, events()), CallState::done);
  all_ranks_came(call);
  return {};
}
std::vector<std::string> ProcessCommunicator::do_all_gather_object(const std::string& text,
                                                                   const Call& call) {
  return others_.all_gather_object(call, text, events());
}

}  // namespace zl
