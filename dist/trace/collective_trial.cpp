#include "dist/trace/collective_trial.h"

#include "dist/flight_recorder.h"
#include "tensor/error.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

constexpr float kUnwritten = -1;  // no result is negative
constexpr CallName kName{"bench", Purpose::check};

}  // namespace

CollectiveTrial::CollectiveTrial(const TrialSpec& spec, Communicator& comm, Memory& memory)
    : spec_(spec), comm_(comm), shard_(spec.count / comm.size()) {
  require(spec.count > 0 && is_float(spec.dtype), "a trial needs elements of a float type");
  require(spec.kind != Collective::barrier && spec.kind != Collective::receive,
          "no trial exists for ", name(spec.kind));
  require(spec.kind != Collective::send || comm.size() > 1, "a rank does not send to itself");
  from_ = Tensor::empty(memory, MemoryUse::communication, {spec.count}, spec.dtype);
  if (spec.kind == Collective::all_to_all || spec.kind == Collective::send)
    to_ = Tensor::empty(memory, MemoryUse::communication, {spec.count}, spec.dtype);
}

double CollectiveTrial::input(int rank, int64_t i) const {
  uint64_t x = uint64_t(i) * 0x9e3779b97f4a7c15u + uint64_t(rank + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return double(x >> 62);  // 0 to 3
}

double CollectiveTrial::expected(int64_t i) const {
  const int rank = comm_.rank(), ranks = comm_.size();
  double sum = 0;
  switch (spec_.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      for (int r = 0; r < ranks; ++r) sum += input(r, i);
      return sum;
    case Collective::all_gather: return input(int(i / shard_), i);
    case Collective::broadcast: return input(0, i);
    case Collective::all_to_all: return input(int(i / shard_), rank * shard_ + i % shard_);
    default: return input((rank + ranks - 1) % ranks, i);
  }
}

void CollectiveTrial::fill() {
  const int rank = comm_.rank();
  std::vector<float> values(size_t(spec_.count));
  for (int64_t i = 0; i < spec_.count; ++i) {
    const bool theirs = (spec_.kind == Collective::all_gather && i / shard_ != rank) ||
                        (spec_.kind == Collective::broadcast && rank != 0);
    values[size_t(i)] = theirs ? kUnwritten : float(input(rank, i));
  }
  kernel::upload_floats(values, from_);
  if (to_.defined()) kernel::fill(kUnwritten, to_);
}

void CollectiveTrial::clear() {
  kernel::fill(0, from_);
  if (to_.defined()) kernel::fill(0, to_);
}

void CollectiveTrial::call() {
  switch (spec_.kind) {
    case Collective::all_reduce: return comm_.all_reduce(from_, Reduction::sum, kName).wait();
    case Collective::reduce_scatter:
      return comm_.reduce_scatter(from_, Reduction::sum, kName).wait();
    case Collective::all_gather: return comm_.all_gather(from_, kName).wait();
    case Collective::broadcast: return comm_.broadcast(from_, 0, kName).wait();
    case Collective::all_to_all: return comm_.all_to_all(from_, to_, kName).wait();
    default: break;
  }
  const int rank = comm_.rank(), ranks = comm_.size();
  Work sending = comm_.send(from_, (rank + 1) % ranks, kName),
       receiving = comm_.receive(to_, (rank + ranks - 1) % ranks, kName);
  sending.wait();
  receiving.wait();
}

int64_t CollectiveTrial::wrong() const {
  const bool shard_only = spec_.kind == Collective::reduce_scatter;
  const int64_t first = shard_only ? comm_.rank() * shard_ : 0;
  const std::vector<float> found =
      kernel::download_floats(shard_only ? result().slice(first, {shard_}) : result());
  int64_t count = 0;
  for (size_t i = 0; i < found.size(); ++i)
    count += !(double(found[i]) == expected(first + int64_t(i)));
  return count;
}

int64_t CollectiveTrial::time() {
  comm_.compare_calls_only_on_timeout();
  Backend& backend = from_.backend();
  clear();  // else a rank finds in its cache what the previous call wrote there
  backend.synchronize();
  comm_.barrier(kName).wait();
  const int64_t begin = steady_nanoseconds();
  call();
  backend.synchronize();
  return steady_nanoseconds() - begin;
}

}  // namespace zl
