#include "stages/numerics/rank_numbers.h"

namespace zl {
namespace {

Tensor of_all_ranks(Communicator& comm, Memory& memory, int64_t each) {
  return Tensor::empty(memory, MemoryUse::communication, {each * comm.size()}, Dtype::f64);
}
Tensor of_this_rank(const Communicator& comm, const Tensor& all) {
  const int64_t each = all.numel() / comm.size();
  return all.slice(comm.rank() * each, {each});
}

}  // namespace

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name)
    : all_(of_all_ranks(comm, memory, mine.numel())) {
  kernel::copy(mine, of_this_rank(comm, all_));
  gathered_ = comm.all_gather(all_, name);
}

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, std::span<const double> mine,
                         CallName name)
    : all_(of_all_ranks(comm, memory, int64_t(mine.size()))) {
  kernel::upload<double>(mine, of_this_rank(comm, all_));
  gathered_ = comm.all_gather(all_, name);
}

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, double mine, CallName name)
    : RankNumbers(comm, memory, {&mine, 1}, name) {}

void RankNumbers::start_download() {
  if (!all_.defined()) return;
  gathered_.wait();
  numbers_ = kernel::start_download(all_);
  all_ = {};
}

const std::vector<double>& RankNumbers::wait() {
  start_download();
  return numbers_.wait();
}

double RankNumbers::wait_for_sum() {
  double sum = 0;
  for (const double number : wait()) sum += number;
  return sum;
}

double sum_over_ranks(Communicator& comm, Memory& memory, double mine, CallName name) {
  return RankNumbers(comm, memory, mine, name).wait_for_sum();
}

}  // namespace zl
