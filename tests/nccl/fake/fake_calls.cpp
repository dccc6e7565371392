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
// and ending with the first, and rounded to the type at every step.
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
  header_.number = between_two() ? (sends ? so_far.sends : so_far.receives)[size_t(asked.peer)]++
                                 : so_far.collectives++;
}

size_t FakeCall::bytes() const {
  const size_t slices = asked_.kind == Collective::reduce_scatter ? size_t(size_) : 1;
  return asked_.data.count * element_ * slices;
}

// What goes between two ranks moves; in a collective each rank gives every other one all that it
// has, so that none gets past a call that does not fit.
void FakeCall::begin(FakeWire& wire) {
  WireHeader header = header_;
  header.bytes = bytes();
  char* const from = const_cast<char*>(static_cast<const char*>(asked_.data.from));
  if (asked_.kind == Collective::send)
    return ++open_, wire.send(asked_.peer, {header, from, &open_});
  if (asked_.kind == Collective::receive)
    return ++open_, wire.receive(asked_.peer, {header, static_cast<char*>(asked_.data.to), &open_});
  scratch_.resize(size_t(size_) * bytes());
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    open_ += 2;
    wire.send(r, {header, from, &open_});
    wire.receive(r, {header, of_rank(r), &open_});
  }
}

// From what all have given. A ring's chunk of a sum begins behind its owner and ends with it; the
// last chunks of an all_reduce may be smaller, or nothing.
void FakeCall::finish() {
  char* const to = static_cast<char*>(asked_.data.to);
  const size_t count = asked_.data.count, n = size_t(size_);
  if (bytes() == 0 || between_two() || asked_.kind == Collective::barrier) return;
  std::memcpy(of_rank(rank_), asked_.data.from, bytes());
  if (asked_.kind == Collective::all_gather) std::memcpy(to, scratch_.data(), n * bytes());
  const bool whole = asked_.kind == Collective::all_reduce;
  const size_t chunk = whole ? (count + n - 1) / n : count;
  for (int owner = 0; owner < size_ && asked_.kind <= Collective::reduce_scatter; ++owner) {
    if (!whole && owner != rank_) continue;
    const size_t first = whole ? std::min(size_t(owner) * chunk, count) : size_t(owner) * chunk,
                 length = whole ? std::min(chunk, count - first) : chunk;
    std::vector<const void*> terms;
    for (int i = 0; i < size_; ++i)
      terms.push_back(of_rank((owner + i) % size_) + first * element_);
    add_around(terms, length, asked_.data.type, whole ? to + first * element_ : to);
  }
}

bool FakeCall::move_on(FakeWire& wire) {
  if (state_ == State::asked) {
    begin(wire);
    state_ = State::begun;
  } else if (state_ == State::begun && open_ == 0) {
    finish();
    state_ = State::done;
  } else {
    return false;
  }
  return true;
}

bool FakeBatch::done() const {
  return given_up_ || std::ranges::all_of(calls_, [](const auto& call) { return call->done(); });
}

// Two rounds, whose messages have the parts 1 and 2.
bool FakeBatch::connect(FakeWire& wire) {
  if (rounds_ == 2 || open_ > 0) return false;
  const uint32_t part = uint32_t(1 + rounds_++);
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
