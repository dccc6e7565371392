// What each collective asks of NCCL. How a call comes under way and ends: nccl_moving.cpp.
#include <span>

#include "dist/nccl/operation.h"
#include "dist/ordered/ordered_scratch.h"
#include "tensor/error.h"

namespace zl {
namespace {

NcclType nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return NcclType::float32;
    case Dtype::bf16: return NcclType::bfloat16;
    case Dtype::f16: return NcclType::float16;
    case Dtype::f64: return NcclType::float64;
    case Dtype::i32: return NcclType::int32;
  }
  throw std::invalid_argument("NCCL has no such type");
}

char* at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.address()) + element * size_of(tensor.dtype());
}

// `count` elements that are read from one place of a tensor and written to another.
NcclData elements(const Tensor& tensor, int64_t from, int64_t to, int64_t count) {
  return {at(tensor, from), at(tensor, to), size_t(count), nccl_type(tensor.dtype())};
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclJoin& join, std::unique_ptr<Agreement> others,
                                   EventStream& events, bool ordered)
    : Communicator(join.rank, join.size, events),
      api_(join.api),
      others_(std::move(others)),
      handle_(join, *others_),
      ordered_(ordered) {
  // All ranks are there before any of them calls NCCL. It is no call of the program: those count
  // from 1.
  (void)do_exchange("", {.kind = Collective::barrier, .name = "joining NCCL", .patient = true});
  or_fail("joining NCCL", [&] { handle_.join(join); });
}

void NcclCommunicator::finish() {
  (void)exchange("", "leaving NCCL");
  or_fail("leaving NCCL", [&] { handle_.finish(); });
}

void NcclCommunicator::or_fail(std::string_view doing, const std::function<void()>& what) {
  try {
    what();
  } catch (const CommunicationError& error) {
    const std::string text = str("rank ", rank(), " ", doing, ": ", error.what());
    const bool first = others_->fail(text);  // before this rank's leaving is an error to the others
    handle_.abort();
    if (first) throw CommunicationError(text);
    others_->throw_failure({.kind = Collective::barrier, .name = doing});
  }
}

NcclLane NcclCommunicator::lane(const Moving& moving) const {
  return {handle_.comm(), moving.tensor.backend().native_stream(Stream::communication)};
}

void NcclCommunicator::send(const Moving& moving, const char* from, int64_t count, int to_rank) {
  const NcclData data{from, nullptr, size_t(count), nccl_type(moving.call.dtype)};
  if (count > 0) handle_.take("ncclSend", [&] { return api_.send(data, to_rank, lane(moving)); });
}

void NcclCommunicator::receive(const Moving& moving, char* to, int64_t count, int from_rank) {
  const NcclData data{nullptr, to, size_t(count), nccl_type(moving.call.dtype)};
  if (count > 0)
    handle_.take("ncclRecv", [&] { return api_.receive(data, from_rank, lane(moving)); });
}

std::shared_ptr<NcclCommunicator::Moving> NcclCommunicator::prepare(const Tensor& tensor,
                                                                    const Call& call) {
  Backend& backend = tensor.backend();
  require(backend.holds_data() && (!api_.needs_gpu || backend.native_stream(Stream::communication)),
          name(call.kind), " '", call.name,
          "': NCCL moves the memory of GPUs, and this tensor is on ", backend.name());
  return std::make_shared<Moving>(*this, tensor, call);
}

// Each rank receives the others' values of its own chunk, and adds them to its own in rank order.
void NcclCommunicator::plan_ordered(Moving& moving, int64_t chunk) {
  const int64_t count = moving.call.count, own = chunk_length(count, chunk, rank());
  Moving* const m = &moving;
  m->scratch = ordered_scratch(m->tensor, rank(), size());
  const auto slot = [m, own, this](int r) {
    return at(m->scratch, (r < rank() ? r : r - 1) * own);
  };
  m->first = [=, this] {
    for (int i = 1; i < size();
         ++i) {  // beginning with the neighbour, so that not all send to the same rank
      const int to = (rank() + i) % size(), from = (rank() + size() - i) % size();
      send(*m, at(m->tensor, to * chunk), chunk_length(count, chunk, to), to);
      if (own > 0) receive(*m, slot(from), own, from);
    }
  };
  if (size() == 1 || own == 0) return;
  m->kernel = [=, this] {
    std::vector<char*> buffers;
    for (int r = 0; r < size(); ++r)
      buffers.push_back(r == rank() ? at(m->tensor, rank() * chunk) : slot(r));
    const std::span<char* const> all = buffers;
    m->tensor.backend().ordered_sum({all, all.subspan(size_t(rank()), 1), 0, own, m->call.dtype,
                                     m->call.reduction == Reduction::mean});
  };
}

NcclCommunicator::Part NcclCommunicator::gather(const Moving& moving, int64_t chunk) {
  const Moving* const m = &moving;
  const int64_t count = m->call.count;
  if (chunk * size() == count)
    return [=, this] {
      handle_.take("ncclAllGather", [&] {
        return api_.all_gather(elements(m->tensor, rank() * chunk, 0, chunk), lane(*m));
      });
    };
  return [=, this] {  // NCCL gathers only what is the same from all ranks
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size(), from = (rank() + size() - i) % size();
      send(*m, at(m->tensor, rank() * chunk), chunk_length(count, chunk, rank()), to);
      receive(*m, at(m->tensor, from * chunk), chunk_length(count, chunk, from), from);
    }
  };
}

Work NcclCommunicator::do_all_reduce(const Tensor& inout, const Call& call) {
  const auto moving = prepare(inout, call);
  Moving* const m = moving.get();
  const int64_t chunk = ordered_chunk(call.count, size());
  if (ordered_) {
    plan_ordered(*m, chunk);
    m->last = gather(*m, chunk);
    return go(moving);
  }
  m->first = [=, this] {
    handle_.take("ncclAllReduce", [&] {
      return api_.all_reduce(elements(m->tensor, 0, 0, m->call.count), lane(*m));
    });
  };
  if (call.reduction == Reduction::mean)
    m->kernel = [=, this] {
      char* const sums = at(m->tensor, 0);
      m->tensor.backend().ordered_sum(
          {{&sums, 1}, {&sums, 1}, 0, m->call.count, m->call.dtype, true, size()});
    };
  return go(moving);
}

Work NcclCommunicator::do_reduce_scatter(const Tensor& whole, const Call& call) {
  const auto moving = prepare(whole, call);
  Moving* const m = moving.get();
  const int64_t shard = call.count / size();
  if (ordered_) {
    plan_ordered(*m, shard);
    return go(moving);
  }
  m->first = [=, this] {
    const NcclData data = elements(m->tensor, 0, rank() * shard, shard);
    handle_.take("ncclReduceScatter", [&] { return api_.reduce_scatter(data, lane(*m)); });
  };
  if (call.reduction == Reduction::mean)
    m->kernel = [=, this] {
      char* const sums = at(m->tensor, rank() * shard);
      m->tensor.backend().ordered_sum(
          {{&sums, 1}, {&sums, 1}, 0, shard, m->call.dtype, true, size()});
    };
  return go(moving);
}

Work NcclCommunicator::do_all_gather(const Tensor& whole, const Call& call) {
  const auto moving = prepare(whole, call);
  moving->first = gather(*moving, call.count / size());
  return go(moving);
}

Work NcclCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  const auto moving = prepare(inout, call);
  moving->first = [m = moving.get(), this] {
    handle_.take("ncclBroadcast", [&] {
      return api_.broadcast(elements(m->tensor, 0, 0, m->call.count), m->call.peer, lane(*m));
    });
  };
  return go(moving);
}

Work NcclCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  const auto moving = prepare(from, call);
  moving->to = to;
  const int64_t shard = call.count / size();
  moving->first = [m = moving.get(), shard, this] {
    for (int i = 1; i < size(); ++i) {
      const int next = (rank() + i) % size(), last = (rank() + size() - i) % size();
      send(*m, at(m->tensor, next * shard), shard, next);
      receive(*m, at(m->to, last * shard), shard, last);
    }
  };
  moving->kernel = [m = moving.get(), shard, this] {
    m->tensor.backend().move_bytes(at(m->tensor, rank() * shard), at(m->to, rank() * shard),
                                   shard * size_of(m->call.dtype));
  };
  return go(moving);
}

}  // namespace zl
