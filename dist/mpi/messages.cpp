#include "dist/mpi/messages.h"

#include <algorithm>

#include "dist/communicator.h"

namespace zl {

void MpiCalls::take(const char* function, const std::function<const char*()>& ask) const {
  if (left) throw CommunicationError("this rank has left MPI");
  inside_ = function;
  const char* const problem = ask();
  inside_ = nullptr;
  if (problem) throw CommunicationError(problem);
}

template <class Post>
void MpiMessages::in_rounds(int64_t bytes, const Post& post) {
  for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes)
    post(begin, std::min(kMaxMessageBytes, bytes - begin), &requests_.emplace_back());
}

void MpiMessages::send(const char* from, int64_t count, Dtype dtype, int to_rank) {
  const int to = members_[size_t(to_rank)];
  in_rounds(count * size_of(dtype), [&](int64_t begin, int64_t bytes, MpiRequest* request) {
    calls_.take("MPI_Isend",
                [&] { return calls_.api.send(from + begin, bytes, to, tag_, request); });
  });
}

void MpiMessages::receive(char* to, int64_t count, Dtype dtype, int from_rank) {
  const int from = members_[size_t(from_rank)];
  in_rounds(count * size_of(dtype), [&](int64_t begin, int64_t bytes, MpiRequest* request) {
    calls_.take("MPI_Irecv",
                [&] { return calls_.api.receive(to + begin, bytes, from, tag_, request); });
  });
}

// `from` is this rank's part of `to`.
void MpiMessages::all_gather(const char* from, char* to, int64_t count, Dtype dtype) {
  const int size = int(members_.size());
  for (int i = 1; i < size; ++i) {
    const int next = (rank_ + i) % size, last = (rank_ + size - i) % size;
    receive(to + last * count * size_of(dtype), count, dtype, last);
    send(from, count, dtype, next);
  }
}

void MpiMessages::all_reduce(char* inout, int64_t count, MpiType type, int group) {
  const int64_t each = type == MpiType::f64 ? 8 : 4;  // [B]
  in_rounds(count * each, [&](int64_t begin, int64_t bytes, MpiRequest* request) {
    calls_.take("MPI_Iallreduce", [&] {
      return calls_.api.all_reduce(inout + begin, bytes / each, type, group, request);
    });
  });
}

void MpiMessages::reduce_scatter(char* inout, int64_t count, MpiType type, int group) {
  MpiRequest* const request = &requests_.emplace_back();
  calls_.take("MPI_Ireduce_scatter_block",
              [&] { return calls_.api.reduce_scatter(inout, count, type, group, request); });
}

bool MpiMessages::done() {
  bool done = true;
  if (!requests_.empty())
    calls_.take("MPI_Test",
                [&] { return calls_.api.test(requests_.data(), int(requests_.size()), &done); });
  if (done) requests_.clear();
  return done;
}

}  // namespace zl
