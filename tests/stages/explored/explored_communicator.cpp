#include "tests/stages/explored/explored_communicator.h"

#include <chrono>

#include "tensor/error.h"

namespace zl::test {
namespace {

char* address(const Tensor& tensor) { return static_cast<char*>(tensor.address()); }

int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Held by a Work: when that is gone, so is the call.
struct InFlight {
  InFlight(ExploredRanks& ranks, int rank, int number) : ranks(ranks), rank(rank), number(number) {}
  InFlight(const InFlight&) = delete;
  ~InFlight() { ranks.drop(rank, number); }
  ExploredRanks& ranks;
  int rank, number;
};

}  // namespace

Work ExploredCommunicator::issue(const Tensor& from, const Tensor& to, const Tensor& start,
                                 const Call& call) {
  if (!in_group_) ++group_;
  const int64_t began = now();
  const int number = ranks_.issue(
      rank(), call,
      {.from = address(from), .to = address(to), .start = address(start), .group = group_});
  const auto in_flight = std::make_shared<InFlight>(ranks_, rank(), number);
  return Work([this, in_flight, call, began] {
    ranks_.wait(rank(), in_flight->number);
    all_ranks_came(call);
    carried_out(call, began, now());
  });
}

std::vector<std::string> ExploredCommunicator::do_all_gather_object(const std::string& text,
                                                                    const Call& call) {
  const InFlight in_flight(ranks_, rank(), ranks_.issue(rank(), call, {.text = &text}));
  ranks_.wait(rank(), in_flight.number);
  return ranks_.texts(in_flight.number);
}

Work ExploredCommunicator::refuse(const Call& call) const {
  throw std::logic_error(str("explored ranks do not ", name(call.kind)));
}

}  // namespace zl::test
