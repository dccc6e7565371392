// How a call comes under way behind the compute lane, and how it ends: well, or with all ranks told
// why.
#include "dist/nccl/operation.h"

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

// The first to fail says why and throws that; the others throw that they were told.
void NcclCommunicator::give_up(const Call& call, const std::string& why) {
  const std::string text = str("rank ", rank(), " in ", describe(call), ": ", why);
  const bool first = others_->fail(text);
  handle_.abort();
  if (first) throw CommunicationError(text);
  others_->throw_failure(call);
}

// Whoever hears that there is no agreement leaves NCCL at once.
void NcclCommunicator::or_abort(const std::function<void()>& agree) {
  try {
    agree();
  } catch (const CommunicationError&) {
    handle_.abort();
    throw;
  }
}

Work NcclCommunicator::go(const std::shared_ptr<Moving>& moving) {
  Moving& m = *moving;
  m.state = Moving::State::done;  // as long as there is no agreement there is nothing to end
  or_abort([&] { m.record = others_->agree(m.call, events()); });
  m.state = Moving::State::met;
  met(m.call);
  group_.push_back(&m);
  if (!in_group_) issue(std::exchange(group_, {}));
  return Work([moving] { moving->owner.complete(*moving); });
}

Work NcclCommunicator::do_barrier(const Call& call) {
  or_abort([&] { others_->tell(others_->agree(call, events()), FlightRecord::State::done); });
  met(call);
  return {};
}

std::vector<std::string> NcclCommunicator::do_exchange(const std::string& text, const Call& call) {
  std::vector<std::string> all;
  or_abort([&] { all = others_->exchange(call, text, events()); });
  return all;
}

Work NcclCommunicator::mail(const Tensor& tensor, const Call& call) {
  const auto moving = prepare(tensor, call);
  Moving* const m = moving.get();
  m->first = [m, this] {
    const int peer = m->call.peer;
    auto* const address = static_cast<char*>(m->tensor.address());
    if (m->call.kind == Collective::send)
      send(*m, address, m->call.count, peer);
    else
      receive(*m, address, m->call.count, peer);
  };
  m->state = Moving::State::done;
  or_abort([&] { m->record = others_->post(call, events()); });
  m->state = Moving::State::met;
  mail_.push_back(m);
  return Work([moving, this] {
    or_abort([&] { others_->await(moving->record); });
    met(moving->call);
    issue_mail();
    complete(*moving);
  });
}

void NcclCommunicator::issue_mail() {
  std::vector<Moving*> met_already;
  for (Moving* m : mail_)
    if (others_->has_met(m->record)) met_already.push_back(m);
  if (met_already.empty()) return;
  std::erase_if(mail_,
                [&](Moving* m) { return std::ranges::find(met_already, m) != met_already.end(); });
  issue(met_already);
}

// NCCL wants the stream for itself until it has taken a group, and so do kernels that read what it
// brought.
void NcclCommunicator::issue(const std::vector<Moving*>& all) {
  const auto run = [&all](Part Moving::*part) {
    for (Moving* m : all)
      if (m->*part) (m->*part)();
  };
  const auto grouped = [&](Part Moving::*part) {
    const bool any =
        std::ranges::any_of(all, [part](Moving* m) { return m->call.count > 0 && bool(m->*part); });
    if (any) handle_.group([&] { run(part); });
  };
  try {
    if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
    const Backend* last = nullptr;
    for (Moving* m : all) {
      Backend& backend = m->tensor.backend();
      if (&backend != std::exchange(last, &backend))
        backend.wait_event(Stream::communication, backend.record_event(Stream::compute).get());
    }
    grouped(&Moving::first);
    run(&Moving::kernel);
    grouped(&Moving::last);
    for (Moving* m : all) {
      m->moved = m->tensor.backend().record_event(Stream::communication);
      m->state = Moving::State::issued;
      others_->tell(m->record, FlightRecord::State::posted);
    }
  } catch (const std::exception& error) {
    for (Moving* m : all) m->state = Moving::State::issued;  // as much of it as there is
    give_up(all.front()->call, error.what());
  }
}

// The host waits, so that the compute lane need not: all that it is told from now on comes behind
// the data.
void NcclCommunicator::complete(Moving& m) {
  require(m.state != Moving::State::met, describe(m.call),
          " is waited for before its group has ended");
  try {
    if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
    others_->tell(m.record, FlightRecord::State::moving);
    handle_.wait("the transfer", [&] { return m.tensor.backend().event_done(m.moved.get()); });
  } catch (const std::exception& error) {
    give_up(m.call, error.what());
  }
  m.state = Moving::State::done;
  others_->tell(m.record, FlightRecord::State::done);
  m.scratch = {};
}

// Behind what was aborted, the stream may still have been told of kernels that read and write the
// buffers of the call.
void NcclCommunicator::settle(Moving& m) {
  Backend& backend = m.tensor.backend();
  const auto point = backend.record_event(Stream::communication);
  const auto limit = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(500);  // then the GPU itself hangs
  while (!backend.event_done(point.get()) && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
}

// The others count on what they have met: it is issued and waited for, unless this rank is about to
// fail anyhow.
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
  if (m.call.between_two()) others_->withdraw(m.record, std::uncaught_exceptions() > 0);
}

}  // namespace zl
