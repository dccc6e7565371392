// How a call comes under way behind the compute lane, and how it ends: well, or with all ranks told why.
#include "dist/nccl_moving.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "tensor/error.h"

namespace zl {

NcclCommunicator::~NcclCommunicator() = default;

void NcclCommunicator::begin_group() { in_group_ = true; }

void NcclCommunicator::end_group() {
  in_group_ = false;
  if (!group_.empty()) issue(std::exchange(group_, {}));
}

void NcclCommunicator::finish() { handle_.finish(); }

// The first to fail says why and throws that; the others throw that they were told.
void NcclCommunicator::give_up(const Call& call, const std::string& why) {
  const std::string text = str("rank ", rank(), " in ", describe(call), ": ", why);
  const bool first = meeting_.fail(text);
  handle_.abort();
  if (first) throw CommunicationError(text);
  meeting_.throw_failure(rank(), call);
}

Work NcclCommunicator::go(const std::shared_ptr<Moving>& moving) {
  Moving& m = *moving;
  try {
    m.record = meeting_.agree(rank(), m.call, events());
  } catch (const CommunicationError&) {
    m.state = Moving::State::done;
    handle_.abort();
    throw;
  }
  met(m.call);
  group_.push_back(&m);
  if (!in_group_) issue(std::exchange(group_, {}));
  return Work([moving] { moving->owner.complete(*moving); });
}

Work NcclCommunicator::do_barrier(const Call& call) {
  try {
    meeting_.tell(rank(), meeting_.agree(rank(), call, events()), FlightRecord::State::done);
  } catch (const CommunicationError&) {
    handle_.abort();
    throw;
  }
  met(call);
  return {};
}

Work NcclCommunicator::mail(const Tensor& tensor, const Call& call) {
  const auto moving = prepare(tensor, call);
  Moving* const m = moving.get();
  m->first = [m, this] {
    const int peer = m->call.peer;
    auto* const address = static_cast<char*>(m->tensor.address());
    if (m->call.kind == Collective::send) send(*m, address, m->call.count, peer);
    else receive(*m, address, m->call.count, peer);
  };
  m->ticket = std::make_unique<Ticket>(meeting_, rank(), tensor, call);
  m->ticket->parcel.carries = false;
  try {
    meeting_.post(m->ticket->parcel, events());
  } catch (const CommunicationError&) {
    m->state = Moving::State::done;
    handle_.abort();
    throw;
  }
  m->record = m->ticket->parcel.record;
  mail_.push_back(m);
  return Work([moving, this] {
    try {
      meeting_.await(moving->ticket->parcel);
    } catch (const CommunicationError&) {
      moving->state = Moving::State::done;
      handle_.abort();
      throw;
    }
    met(moving->call);
    issue_mail();
    complete(*moving);
  });
}

void NcclCommunicator::issue_mail() {
  std::vector<Moving*> met_already;
  for (Moving* m : mail_)
    if (m->ticket->parcel.state == Parcel::State::done) met_already.push_back(m);
  if (met_already.empty()) return;
  std::erase_if(mail_, [](Moving* m) { return m->ticket->parcel.state == Parcel::State::done; });
  issue(met_already);
}

// NCCL wants the stream for itself until it has taken a group, and so do kernels that read what it brought.
void NcclCommunicator::issue(const std::vector<Moving*>& all) {
  const auto run = [&all](Part Moving::* part) {
    for (Moving* m : all)
      if (m->*part) (m->*part)();
  };
  const auto grouped = [&](Part Moving::* part) {
    const bool any = std::ranges::any_of(all, [part](Moving* m) { return m->call.count > 0 && bool(m->*part); });
    if (any) handle_.group([&] { run(part); });
  };
  try {
    if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
    const Backend* last = nullptr;
    for (Moving* m : all) {
      Backend& backend = m->tensor.backend();
      if (&backend != std::exchange(last, &backend)) backend.follow(Lane::communication, backend.mark(Lane::compute).get());
    }
    grouped(&Moving::first);
    run(&Moving::kernel);
    grouped(&Moving::last);
    for (Moving* m : all) {
      m->moved = m->tensor.backend().mark(Lane::communication);
      m->state = Moving::State::issued;
      meeting_.tell(rank(), m->record, FlightRecord::State::posted);
    }
  } catch (const std::exception& error) {
    for (Moving* m : all) m->state = Moving::State::issued;  // as much of it as there is
    give_up(all.front()->call, error.what());
  }
}

// The host waits, so that the compute lane need not: all that it is told from now on comes behind the data.
void NcclCommunicator::complete(Moving& m) {
  require(m.state != Moving::State::met, describe(m.call), " is waited for before its group has ended");
  try {
    if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
    meeting_.tell(rank(), m.record, FlightRecord::State::moving);
    handle_.wait("the transfer", [&] { return m.tensor.backend().passed(m.moved.get()); });
  } catch (const std::exception& error) {
    give_up(m.call, error.what());
  }
  m.state = Moving::State::done;
  meeting_.tell(rank(), m.record, FlightRecord::State::done);
  m.scratch = {};
}

// Behind what was aborted, the stream may still have been told of kernels that read and write the buffers of the call.
void NcclCommunicator::settle(Moving& m) {
  Backend& backend = m.tensor.backend();
  const auto point = backend.mark(Lane::communication);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);  // then the GPU itself hangs
  while (!backend.passed(point.get()) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
}

// The others count on what they have met: it is issued and waited for, unless this rank is about to fail anyhow.
void NcclCommunicator::drop(Moving& m) noexcept {
  try {
    const bool lost = std::uncaught_exceptions() > 0;
    if (m.state == Moving::State::met && !lost) {
      if (!group_.empty()) issue(std::exchange(group_, {}));
      issue_mail();
    }
    if (m.state == Moving::State::issued && !handle_.ended()) complete(m);
  } catch (const std::exception&) {  // the next call throws it again
  }
  try {
    if (m.state == Moving::State::issued) settle(m);
  } catch (const std::exception&) {  // of a GPU that does not answer
  }
  std::erase(group_, &m);
  std::erase(mail_, &m);
}

}  // namespace zl
