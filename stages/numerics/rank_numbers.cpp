#include "stages/numerics/rank_numbers.h"

namespace zl {
namespace {

Tensor one_per_rank(Communicator& comm, Memory& memory) {
  return Tensor::empty(memory, MemoryUse::communication, {comm.size()}, Dtype::f64);
}

kernel::Download<double> gathered(Communicator& comm, const Tensor& all, CallName name,
                                  double on_meta) {
  comm.all_gather(all, name).wait();
  return kernel::start_download<double>(all, on_meta);
}

}  // namespace

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name,
                         double on_meta) {
  const Tensor all = one_per_rank(comm, memory);
  kernel::copy(mine, all.slice(comm.rank(), {1}));
  numbers_ = gathered(comm, all, name, on_meta);
}

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, double mine, CallName name) {
  const Tensor all = one_per_rank(comm, memory);
  kernel::upload<double>({&mine, 1}, all.slice(comm.rank(), {1}));
  numbers_ = gathered(comm, all, name, mine);
}

const std::vector<double>& RankNumbers::wait() { return numbers_.wait(); }

double RankNumbers::wait_for_sum() {
  double sum = 0;
  for (const double number : wait()) sum += number;
  return sum;
}

double sum_over_ranks(Communicator& comm, Memory& memory, double mine, CallName name) {
  return RankNumbers(comm, memory, mine, name).wait_for_sum();
}

}  // namespace zl
