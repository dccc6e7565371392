#include "tests/nccl/fake/fake_calls.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "tensor/dtype.h"

namespace zl::test {
namespace {

template <class T>
void add_around(const std::vector<const void*>& terms, size_t count, T* sums) {
  for (size_t i = 0; i < count; ++i) {
    T total = static_cast<const T*>(terms[1 % terms.size()])[i];
    for (size_t r = 2; r <= terms.size(); ++r) {
      const T next = static_cast<const T*>(terms[r % terms.size()])[i];
      if constexpr (std::is_same_v<T, int32_t>)
        total = int32_t(uint32_t(total) + uint32_t(next));
      else
        total = T(Compute<T>(total) + Compute<T>(next));
    }
    sums[i] = total;
  }
}

// Adds `count` elements of every term into `sums`, as a ring does: beginning with the second term
// and ending with the first, and rounded to the type at every step. `sums` may be one of the terms.
void add_around(const std::vector<const void*>& terms, size_t count, NcclType type, void* sums) {
  switch (type) {
    case NcclType::float32: return add_around(terms, count, static_cast<float*>(sums));
    case NcclType::bfloat16: return add_around(terms, count, static_cast<bf16*>(sums));
    case NcclType::float16: return add_around(terms, count, static_cast<f16*>(sums));
    case NcclType::float64: return add_around(terms, count, static_cast<double*>(sums));
    case NcclType::int32: return add_around(terms, count, static_cast<int32_t*>(sums));
    case NcclType::uint8: throw std::logic_error("bytes are not added");
  }
}

}  // namespace

size_t size_of_type(NcclType type) {
  switch (type) {
    case NcclType::uint8: return 1;
    case NcclType::float64: return 8;
    case NcclType::float16:
    case NcclType::bfloat16: return 2;
    default: return 4;
  }
}

FakeCall::FakeCall(const AskedOfNccl& asked, int rank, int size, AskedSoFar& so_far)
    : asked_(asked), rank_(rank), size_(size), element_(size_of_type(asked.data.type)) {
  const bool sends = asked.kind == Collective::send;
  header_.kind = between_two() ? Collective::send : asked.kind;
  header_.type = asked.data.type;
  header_.count = asked.data.count;
  if (asked.kind == Collective::broadcast) header_.root = asked.peer;
  header_.number = between_two() ? (sends ? so_far.sends : so_far.receives)[size_t(asked.peer)]++
                                 : so_far.collectives++;
}

// The last chunks of an all_reduce may be smaller, or nothing.
size_t FakeCall::first_of(int rank) const {
  const size_t count = asked_.data.count, n = size_t(size_);
  if (asked_.kind != Collective::all_reduce) return size_t(rank) * count;
  return std::min(size_t(rank) * ((count + n - 1) / n), count);
}

void FakeCall::send(FakeWire& wire, int to, const char* data, size_t elements) {
  WireHeader header = header_;
  header.part = part_;
  header.bytes = elements * element_;
  ++open_[part_];
  wire.send(to, {header, const_cast<char*>(data), &open_[part_]});
}

void FakeCall::receive(FakeWire& wire, int from, char* data, size_t elements) {
  WireHeader header = header_;
  header.part = part_;
  header.bytes = elements * element_;
  ++open_[part_];
  wire.receive(from, {header, data, &open_[part_]});
}

// Chunks go to their ranks. An all_reduce's sums come back into its whole, when the rank that adds
// them has all that was here.
void FakeCall::begin_reduction(FakeWire& wire) {
  const size_t own = chunk_of(rank_);
  scratch_.resize(size_t(size_) * own * element_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    part_ = 0;
    send(wire, r, from(first_of(r)), chunk_of(r));
    receive(wire, r, scratch_.data() + size_t(r) * own * element_, own);
    part_ = 1;
    if (asked_.kind == Collective::all_reduce) receive(wire, r, to(first_of(r)), chunk_of(r));
  }
}

void FakeCall::add_own_chunk() {
  const size_t own = chunk_of(rank_);
  std::vector<const void*> terms{from(first_of(rank_))};
  for (int i = 1; i < size_; ++i)
    terms.push_back(scratch_.data() + size_t((rank_ + i) % size_) * own * element_);
  if (own > 0)
    add_around(terms, own, asked_.data.type,
               asked_.kind == Collective::all_reduce ? to(first_of(rank_)) : to(0));
}

void FakeCall::begin_gather(FakeWire& wire) {
  const size_t count = asked_.data.count;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    send(wire, r, from(0), count);
    receive(wire, r, to(first_of(r)), count);
  }
  if (count > 0) std::memmove(to(first_of(rank_)), from(0), count * element_);
}

void FakeCall::begin_broadcast(FakeWire& wire) {
  const size_t count = asked_.kind == Collective::broadcast ? asked_.data.count : 0;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    send(wire, r, from(0), rank_ == asked_.peer ? count : 0);
    receive(wire, r, to(0), r == asked_.peer ? count : 0);
  }
  if (rank_ == asked_.peer && count > 0) std::memmove(to(0), from(0), count * element_);
}

void FakeCall::begin(FakeWire& wire) {
  switch (asked_.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: return begin_reduction(wire);
    case Collective::all_gather: return begin_gather(wire);
    case Collective::send: return send(wire, asked_.peer, from(0), asked_.data.count);
    case Collective::receive: return receive(wire, asked_.peer, to(0), asked_.data.count);
    default: return begin_broadcast(wire);
  }
}

bool FakeCall::move_on(FakeWire& wire) {
  const bool adds =
      asked_.kind == Collective::all_reduce || asked_.kind == Collective::reduce_scatter;
  if (state_ == State::asked) {
    begin(wire);
    state_ = State::first;
  } else if (state_ == State::first && open_[0] == 0) {
    if (adds) add_own_chunk();
    part_ = 1;
    for (int r = 0; r < size_ && asked_.kind == Collective::all_reduce; ++r)
      if (r != rank_) send(wire, r, to(first_of(rank_)), chunk_of(rank_));
    state_ = State::second;
  } else if (state_ == State::second && open_[1] == 0) {
    state_ = State::done;
  } else {
    return false;
  }
  return true;
}

bool FakeBatch::done() const {
  return given_up_ || std::ranges::all_of(calls_, [](const auto& call) { return call->done(); });
}

// Two rounds, whose messages have the parts 2 and 3.
bool FakeBatch::connect(FakeWire& wire) {
  if (rounds_ == 2 || open_ > 0) return false;
  const uint32_t part = uint32_t(2 + rounds_++);
  for (const auto& [kind, peer] : first_) {
    const bool sends = kind == Collective::send;
    open_ += 2;
    wire.send(peer, {{.kind = kind, .part = part}, nullptr, &open_});
    wire.receive(
        peer,
        {{.kind = sends ? Collective::receive : Collective::send, .part = part}, nullptr, &open_});
  }
  return true;
}

bool FakeBatch::move_on(FakeWire& wire) {
  if (stalls_) return false;
  bool moved = false, another_works = false;  // a collective
  for (const auto& call : calls_) {
    if (call->done() || (!call->between_two() && another_works)) continue;
    moved |= call->move_on(wire);
    another_works |= !call->between_two() && !call->done();
  }
  return moved;
}

}  // namespace zl::test
