// Who meets whom, and what moves then.
#include "tests/nccl/fake/fake_matching.h"

#include <algorithm>
#include <cstring>

#include "tests/nccl/fake/fake_sums.h"

namespace zl::test {
namespace {

size_t bytes(const FakeNccl::Operation& operation) {
  return operation.data.count * size_of_type(operation.data.type);
}
bool between_two(const FakeNccl::Operation& operation) {
  return operation.kind == Collective::send || operation.kind == Collective::receive;
}

// `count` elements of every rank, added.
void add(const std::vector<FakeNccl::Operation*>& ranks, size_t count, std::vector<char>& sums) {
  const NcclType type = ranks[0]->data.type;
  std::vector<const void*> terms;
  for (const auto* rank : ranks) terms.push_back(rank->data.from);
  sums.resize(count * size_of_type(type));
  add_around(terms, count, type, sums.data());
}

void carry_out(const std::vector<FakeNccl::Operation*>& ranks) {
  const FakeNccl::Operation& first = *ranks[0];
  const size_t whole = bytes(first), count = first.data.count, n = ranks.size();
  std::vector<char> all;
  if (first.kind == Collective::all_reduce) {
    add(ranks, count, all);
  } else if (first.kind == Collective::reduce_scatter) {
    add(ranks, count * n, all);
  } else if (first.kind == Collective::all_gather) {
    for (const auto* rank : ranks)
      all.insert(all.end(), static_cast<const char*>(rank->data.from),
                 static_cast<const char*>(rank->data.from) + whole);
  } else {
    const auto* from = static_cast<const char*>(ranks[size_t(first.peer)]->data.from);
    all.assign(from, from + whole);
  }
  for (size_t r = 0; r < n; ++r) {
    const bool own = first.kind == Collective::reduce_scatter;
    if (!all.empty())
      std::memcpy(ranks[r]->data.to, all.data() + (own ? r * whole : 0), own ? whole : all.size());
  }
}

FakeNccl::Batch* active(const NcclComm* comm) {
  if (!comm || comm->batches.empty()) return nullptr;
  FakeNccl::Batch& batch = *comm->batches.front();
  return batch.active && !batch.stalled ? &batch : nullptr;
}

FakeNccl::Operation* next_of(NcclComm* comm, auto wanted) {
  FakeNccl::Batch* const batch = active(comm);
  if (!batch) return nullptr;
  const auto found = std::ranges::find_if(batch->operations, [&](const auto& operation) {
    return !operation.done && wanted(operation);
  });
  return found == batch->operations.end() ? nullptr : &*found;
}

}  // namespace

bool FakeNccl::World::complete() const {
  return std::ranges::none_of(comms, [](const NcclComm* comm) { return comm == nullptr; });
}

bool FakeNccl::World::has_open(int rank, Collective kind, int peer) const {
  const NcclComm* const comm = comms[size_t(rank)];
  return comm && comm->open && comm->open->first.contains({kind, peer});
}

// NCCL's src/transport.cc (2.28.9), ncclTransportP2pSetup: the first group in which two ranks send
// or receive connects them. It blocks in bootstrapRecv until every peer of the group has issued its
// side, and "We need to sync ranks here": until every peer has got that far, too.
bool FakeNccl::connected(World& world, const NcclComm& comm) {
  const auto facing = [](Collective kind) {
    return kind == Collective::send ? Collective::receive : Collective::send;
  };
  for (NcclComm* each : world.comms)
    if (each && each->open)
      each->open->met |= std::ranges::all_of(each->open->first, [&](const auto& side) {
        return world.has_open(side.second, facing(side.first), each->rank);
      });
  return std::ranges::all_of(comm.open->first, [&](const auto& side) {
    return comm.open->met && (!world.has_open(side.second, facing(side.first), comm.rank) ||
                              world.comms[size_t(side.second)]->open->met);
  });
}

bool FakeNccl::match_collective(World& world) {
  std::vector<Operation*> all;
  for (NcclComm* comm : world.comms) {
    Operation* const next =
        next_of(comm, [](const Operation& operation) { return !between_two(operation); });
    if (!next) return false;
    if (!all.empty() && (next->kind != all[0]->kind || next->data.count != all[0]->data.count ||
                         next->data.type != all[0]->data.type || next->peer != all[0]->peer))
      return false;  // NCCL would hang, or worse
    all.push_back(next);
  }
  carry_out(all);
  if (all[0]->kind != Collective::broadcast)  // around the ring of ranks
    for (size_t r = 0; r < all.size(); ++r)
      count_bytes(int(r), int((r + 1) % all.size()),
                  (all[0]->kind == Collective::all_reduce ? 2 * bytes(*all[0]) / all.size()
                                                          : bytes(*all[0])) *
                      (all.size() - 1));
  for (Operation* operation : all) operation->done = true;
  return true;
}

bool FakeNccl::match_pair(World& world, int sender, int receiver) {
  const auto facing = [](Collective kind, int peer) {
    return [=](const Operation& operation) {
      return operation.kind == kind && operation.peer == peer;
    };
  };
  Operation* const from = next_of(world.comms[size_t(sender)], facing(Collective::send, receiver));
  Operation* const to = next_of(world.comms[size_t(receiver)], facing(Collective::receive, sender));
  if (!from || !to || bytes(*from) != bytes(*to)) return false;
  if (bytes(*from) > 0) std::memcpy(to->data.to, from->data.from, bytes(*from));
  count_bytes(sender, receiver, bytes(*from));
  return from->done = to->done = true;
}

void FakeNccl::count_bytes(int from, int to, size_t bytes) {
  if (machines_.empty() || machines_[size_t(from)] == machines_[size_t(to)]) return;
  bytes_between_machines_ += int64_t(bytes);
}

void FakeNccl::match(World& world) {
  const int n = int(world.comms.size());
  for (bool moved = true; moved;) {
    moved = match_collective(world);
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) moved |= match_pair(world, a, b);
    for (NcclComm* comm : world.comms) {
      Batch* const batch = active(comm);
      if (!batch || !std::ranges::all_of(batch->operations, &Operation::done)) continue;
      batch->done = true;
      comm->batches.pop_front();
      moved = true;
    }
  }
}

}  // namespace zl::test
