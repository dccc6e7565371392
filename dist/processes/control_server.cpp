#include "dist/processes/control_server.h"

#include <poll.h>

#include <algorithm>
#include <bit>

#include "dist/communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
// How long the server waits for the last calls of all ranks, to find a cause and to report them.
constexpr int64_t kToFindCause = 300 * kMillisecond, kToReport = 150 * kMillisecond;
constexpr int64_t kToRead = 300 * kMillisecond;  // for the ranks to read why the run failed

// A rank that waits in a collective was answered: its last message was sent before the answer came.
void keep_answered(FlightRecorder& flight) {
  const auto record = flight.in_flight();
  if (record && record->state == CallState::waiting && !record->call.point_to_point())
    flight.change(flight.calls() - 1, CallState::moving);
}

// Without a call: 0 in the group of all ranks.
Call last_collective(const FlightRecorder& flight) {
  Call last;
  for (const FlightRecord& record : flight.recent(kAllRecords))
    if (!record.call.point_to_point()) last = record.call;
  return last;
}

int64_t last_collective(const FlightRecorder& flight, const RankGroup& group) {  // 0: none
  int64_t last = 0;
  for (const FlightRecord& record : flight.recent(kAllRecords))
    if (!record.call.point_to_point() && record.call.group == group) last = record.call.sequence;
  return last;
}

}  // namespace

ControlServer::ControlServer(std::vector<std::unique_ptr<Connection>> connections,
                             std::chrono::milliseconds timeout)
    : timeout_(std::chrono::nanoseconds(timeout).count()),
      alive_interval_(std::chrono::nanoseconds(alive_interval(timeout)).count()),
      ranks_(connections.size()) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].connection = std::move(connections[r]);
    ranks_[r].alive = steady_nanoseconds();
  }
  thread_ = std::jthread([this] { serve(); });
}

ControlServer::~ControlServer() {
  closing_ = true;
  thread_.join();
}

void ControlServer::serve() {
  int64_t close_at = 0;
  for (;;) {
    std::vector<pollfd> waiting;
    for (const Rank& rank : ranks_)
      if (!rank.gone) {
        const int out = rank.connection->has_unsent() ? POLLOUT : 0;
        waiting.push_back({rank.connection->socket().fd(), short(POLLIN | out), 0});
      }
    (void)::poll(waiting.data(), waiting.size(), 5);
    for (int r = 0; r < int(ranks_.size()); ++r)
      if (!ranks_[size_t(r)].gone) read(r);
    const int64_t now = steady_nanoseconds();
    check(now);
    judge(now);
    publish(now);
    if (!closing_) continue;
    if (!over_ && publish_at_ == 0) fail("rank 0 has ended");
    if (over_ && close_at == 0) {
      close_at = now + kToRead;
      for (const Rank& rank : ranks_) rank.connection->finish_sending();
    }
    if (over_ && (all_gone() || now > close_at)) return;
  }
}

void ControlServer::read(int r) {
  Rank& rank = ranks_[size_t(r)];
  rank.connection->flush();
  for (;;) {
    Message message;
    const int64_t before = rank.connection->received();
    const auto state = rank.connection->receive(message, std::chrono::steady_clock::now());
    if (rank.connection->received() > before) {
      rank.alive = steady_nanoseconds();
      rank.flight.set_current(true);
    }
    if (state == Connection::State::waiting) return;
    try {
      if (state == Connection::State::message) {
        handle(r, message);
        continue;
      }
      rank.gone = true;
      rank.flight.set_current(false);
      if (state != Connection::State::ended) fail(str("rank ", r, " sends what is no message"));
      if (!rank.ended)
        fail(str("rank ", r,
                 " has died: its process ended without notice (killed, out of memory, or by its "
                 "own exit()); ",
                 last_seen(r, rank.flight, steady_nanoseconds())));
      return;
    } catch (const std::exception& error) {
      fail(str("rank ", r, ": ", error.what()));
    }
  }
}

void ControlServer::handle(int r, const Message& message) {
  Rank& rank = ranks_[size_t(r)];
  WireReader wire(message.body);
  decode(wire.text(), texts_, rank.flight);
  switch (ControlMessage(message.kind)) {
    case ControlMessage::flight: rank.answered = wire.get<int64_t>(); [[fallthrough]];
    case ControlMessage::alive:
      if (!in_collective(r)) keep_answered(rank.flight);
      return;
    case ControlMessage::enter: {
      const auto record = wire.get<int64_t>();
      return enter(r, record, wire.text());
    }
    case ControlMessage::withdraw: {
      const auto record = wire.get<int64_t>();
      return withdraw(r, record, wire.get<bool>());
    }
    case ControlMessage::suspect: return suspect(r, wire.text());
    case ControlMessage::stopped: {
      const std::string why = wire.text();
      return fail({why, wire.text()});
    }
    case ControlMessage::ended: rank.ended = true; return;
    default: throw CommunicationError("it sends an unknown message");
  }
}

bool ControlServer::is_among(const RankGroup& group, int rank) const {
  return group.has(rank) && group.ranks <= ~uint64_t(0) >> (64 - ranks_.size());
}

void ControlServer::enter(int rank, int64_t record, const std::string& text) {
  const auto last = ranks_[size_t(rank)].flight.last();
  const bool known = last && is_among(last->call.group, rank) &&
                     (!last->call.point_to_point() ||
                      (last->call.peer >= 0 && last->call.peer_of_run() < int(ranks_.size())));
  if (!known) throw CommunicationError("it enters no call");
  const std::vector<Entered*> all =
      participants(entered_.emplace_back(Entered{rank, record, last->call, text}));
  if (all.empty()) return;
  std::string why, texts;
  if (last->call.point_to_point()) {
    why = mismatch_text(rank, last->call, all[0]->rank, all[0]->call);
  } else {
    std::vector<const Call*> calls(ranks_.size());
    for (const Entered* one : all) calls[size_t(one->rank)] = &one->call;
    why = mismatch_text(calls);
    for (const Entered* one : all) texts += WireWriter().text(one->text).take();
  }
  if (!why.empty()) return fail(why);
  for (const Entered* one : all) {
    Rank& met = ranks_[size_t(one->rank)];
    if (one->call.point_to_point())
      met.flight.change(one->record, CallState::done);
    else
      keep_answered(met.flight);
    if (!met.gone)
      met.connection->send(uint8_t(ControlMessage::met),
                           WireWriter().put(one->record).text(texts).take());
  }
  std::erase_if(entered_, [&](const Entered& one) { return std::ranges::count(all, &one) > 0; });
}

std::vector<ControlServer::Entered*> ControlServer::participants(Entered& came) {
  std::vector<Entered*> all;
  const Call& call = came.call;
  if (call.point_to_point()) {
    const auto other = std::ranges::find_if(entered_, [&](const Entered& one) {
      return one.call.point_to_point() && one.rank == call.peer_of_run() &&
             one.call.peer_of_run() == came.rank && one.call.group == call.group &&
             one.call.kind != call.kind;
    });
    if (other != entered_.end()) all = {&*other, &came};
    return all;
  }
  for (Entered& one : entered_)
    if (!one.call.point_to_point() && one.call.group == call.group) all.push_back(&one);
  const int size = call.group.number ? std::popcount(call.group.ranks) : int(ranks_.size());
  if (int(all.size()) < size) return {};
  std::ranges::sort(all, {}, &Entered::rank);
  return all;
}

const ControlServer::Entered* ControlServer::in_collective(int rank) const {
  const auto found = std::ranges::find_if(
      entered_, [&](const Entered& one) { return one.rank == rank && !one.call.point_to_point(); });
  return found == entered_.end() ? nullptr : &*found;
}

void ControlServer::withdraw(int rank, int64_t record, bool unwinding) {
  const auto entered = std::ranges::find_if(
      entered_, [&](const Entered& one) { return one.rank == rank && one.record == record; });
  if (entered == entered_.end()) return;  // it has a match
  if (!unwinding)
    fail(str("rank ", rank, " dropped the Work of ", describe(entered->call),
             " before the other side came; call wait() on it"));
  entered_.erase(entered);
}

WaitingRank ControlServer::waiting(int rank) const {
  const auto record = ranks_[size_t(rank)].flight.in_flight();
  for (const Entered& one : entered_)
    if (one.rank == rank && one.call.point_to_point() && record &&
        record->state == CallState::waiting && record->call == one.call)
      return {.call = &one.call, .peer = one.call.peer_of_run()};
  const Entered* const collective = in_collective(rank);
  if (!collective) return {};
  return {.call = &collective->call, .group = collective->call.group};
}

// Fails if a rank waits for one that has ended, or ranks wait for each other.
void ControlServer::check_waiting() {
  std::vector<WaitingRank> all;
  for (int r = 0; r < int(ranks_.size()); ++r) all.push_back(waiting(r));
  for (int ended = 0; ended < int(all.size()); ++ended)
    for (int r = 0; r < int(all.size()) && ranks_[size_t(ended)].ended; ++r) {
      const WaitingRank& one = all[size_t(r)];
      if (one.call && (one.peer >= 0 ? one.peer == ended : one.group.has(ended)))
        fail(ended_text(ended, flights(), r, *one.call));
    }
  fail(deadlock_text(all));
}

void ControlServer::check(int64_t now) {
  if (was_stopped(last_loop_, now)) {  // with all threads of this process
    resumed_ = now;
    for (Rank& rank : ranks_) rank.alive = now;
  }
  last_loop_ = now;
  if (now - last_alive_ > alive_interval_) {
    last_alive_ = now;
    broadcast(ControlMessage::server_alive, "");
  }
  if (failed() || now - last_check_ < 20 * kMillisecond) return;
  last_check_ = now;
  for (Rank& rank : ranks_)
    if (now - rank.alive > 3 * alive_interval_) rank.flight.set_current(false);
  check_waiting();
  const std::string overdue = overdue_text(flights(), timeout_, resumed_);
  check_silence(now, !overdue.empty() || (suspicion_ && suspicion_->rank >= 0));
  fail(overdue);
  if (failed()) return;
  if (suspicion_)
    repeat_question();  // a late rank may come to the call in which the others differ
  else if (!first_mismatch_text(flights()).empty())
    suspect(-1, "");
}

// That a rank is silent says more than the calls that wait for it, and they may have waited for
// longer than it is silent. So it need not be silent for the whole timeout if `others_wait`.
void ControlServer::check_silence(int64_t now, bool others_wait) {
  const int64_t least = std::max(timeout_ / 2, std::min(timeout_, 500 * kMillisecond));
  for (int r = 1; r < int(ranks_.size()) && timeout_ > 0; ++r) {
    Rank& rank = ranks_[size_t(r)];
    if (rank.ended || rank.gone || now - rank.alive <= (others_wait ? least : timeout_)) continue;
    rank.flight.set_current(false);
    fail(str("rank ", r, " has given no sign of life for ", human_time(now - rank.alive),
             ": its process is stopped, or its machine or the network is gone; ",
             last_seen(r, rank.flight, now)));
  }
}

void ControlServer::suspect(int rank, const std::string& why) {
  if (failed() || (suspicion_ && (rank < 0 || suspicion_->rank >= 0))) return;
  suspicion_ = {rank, why, steady_nanoseconds() + kToFindCause};
  ask_for_flights();
}

// A rank that died, and made the call fail, is noticed meanwhile.
void ControlServer::judge(int64_t now) {
  if (!suspicion_ || failed()) return;
  const bool mismatch = suspicion_->rank < 0;
  if (now < suspicion_->until && (mismatch || !all_answered())) return;
  std::string cause = first_mismatch_text(flights());
  if (cause.empty() && !mismatch) cause = missing_text(suspicion_->rank);
  if (mismatch || cause.empty())
    fail(cause + suspicion_->why);
  else
    fail(str(cause, ". So ", suspicion_->why));
  suspicion_.reset();
}

std::string ControlServer::missing_text(int rank) const {
  const Call last = last_collective(ranks_[size_t(rank)].flight);
  std::string text;
  for (int r = 0; r < int(ranks_.size()); ++r)
    if (const FlightRecorder& flight = ranks_[size_t(r)].flight;
        r != rank && last.group.has(r) && last_collective(flight, last.group) < last.sequence)
      text +=
          str(text.empty() ? "" : "; ", "not there: ", last_seen(r, flight, steady_nanoseconds()));
  return text;
}

// Tells all ranks how the run ended.
void ControlServer::publish(int64_t now) {
  if (over_) return;
  if (publish_at_ > 0 && (all_answered() || now > publish_at_)) {
    const RunFailure why = failure();
    std::string report = str("communication failed: ", why.why, "\n");
    for (int r = 0; r < int(ranks_.size()); ++r)
      report += flight_report(r, ranks_[size_t(r)].flight, ranks_[size_t(r)].ended, now);
    {
      const std::lock_guard lock(mutex_);
      report_ = report;
    }
    broadcast(ControlMessage::failure, WireWriter().text(why.why).text(why.detail).take());
    over_ = true;
  } else if (publish_at_ == 0 && std::ranges::all_of(ranks_, &Rank::ended)) {
    broadcast(ControlMessage::over, "");
    over_ = true;
  }
}

void ControlServer::fail(const RunFailure& failure) {
  if (failure.why.empty() || failed() || over_) return;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
  }
  publish_at_ = steady_nanoseconds() + kToReport;
  ask_for_flights();
}

void ControlServer::ask_for_flights() {
  ++asked_;
  repeat_question();
}

void ControlServer::repeat_question() {
  broadcast(ControlMessage::send_flight, WireWriter().put(asked_).take());
}

bool ControlServer::all_answered() const {
  return std::ranges::all_of(
      ranks_, [this](const Rank& rank) { return rank.gone || rank.answered == asked_; });
}
bool ControlServer::all_gone() const { return std::ranges::all_of(ranks_, &Rank::gone); }

void ControlServer::broadcast(ControlMessage kind, const std::string& body) {
  for (const Rank& rank : ranks_)
    if (!rank.gone) rank.connection->send(uint8_t(kind), body);
}

Flights ControlServer::flights() const {
  Flights all;
  for (const Rank& rank : ranks_) all.push_back(&rank.flight);
  return all;
}

RunFailure ControlServer::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string ControlServer::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace zl
