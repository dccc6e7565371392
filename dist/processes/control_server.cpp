#include "dist/processes/control_server.h"

#include <poll.h>

#include <algorithm>
#include <bit>

#include "dist/communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kToAnswer = 300 * kMillisecond;  // for the ranks to send their last calls
constexpr int64_t kToRead = 300 * kMillisecond;    // for the ranks to read why the run failed

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

// A rank that waits in a collective was answered: its last message was sent before the answer came.
void keep_answered(FlightRecorder& flight) {
  const auto record = flight.in_flight();
  if (record && record->state == CallState::waiting && !record->call.point_to_point())
    flight.change(flight.calls() - 1, CallState::moving);
}

}  // namespace

ControlServer::ControlServer(const RankIdentity& self, const BootstrapOptions& options,
                             std::unique_ptr<Connection> own, std::chrono::milliseconds timeout)
    : timeout_(std::chrono::nanoseconds(timeout).count()),
      alive_interval_(std::chrono::nanoseconds(alive_interval(timeout)).count()),
      ranks_(size_t(self.size)) {
  lobby_.emplace(self, options,
                 [this](int rank, auto connection) { add(rank, std::move(connection)); });
  add(0, std::move(own));
  thread_ = std::jthread([this] { serve(); });
}

ControlServer::~ControlServer() {
  closing_ = true;
  thread_.join();
}

void ControlServer::add(int rank, std::unique_ptr<Connection> connection) {
  ranks_[size_t(rank)].connection = std::move(connection);
  ranks_[size_t(rank)].alive = steady_nanoseconds();
  ranks_[size_t(rank)].gone = false;
}

void ControlServer::let_in() try {
  if (!lobby_->look()) return;
  lobby_.reset();
  broadcast(ControlMessage::started, "");
} catch (const InputError& error) {
  fail(RunFailure{error.what(), kInputFailure});
} catch (const CommunicationError& error) {
  fail(error.what());
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
    if (lobby_ && !failed()) let_in();
    const int64_t now = steady_nanoseconds();
    check(now);
    publish(now);
    if (!closing_) continue;
    if (!over_ && !failing_) fail("rank 0 has ended");
    if (over_ && close_at == 0) {
      close_at = now + kToRead;
      for (const Rank& rank : ranks_)
        if (!rank.gone) rank.connection->finish_sending();
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
      if (!rank.entered) keep_answered(rank.flight);
      return;
    case ControlMessage::enter: return enter(r, wire.text());
    case ControlMessage::failed: {
      const std::string why = wire.text(), detail = wire.text();
      return wire.get<bool>() ? fail({why, ""}, Failing::Cause::missing_rank, r)
                              : fail({why, detail});
    }
    case ControlMessage::ended: rank.ended = true; return;
    default: throw CommunicationError("it sends an unknown message");
  }
}

void ControlServer::enter(int r, const std::string& text) {
  const auto last = ranks_[size_t(r)].flight.last();
  const uint64_t all = ~uint64_t(0) >> (64 - ranks_.size());
  if (!last || last->call.point_to_point() || !last->call.group.has(r) ||
      last->call.group.ranks > all)
    throw CommunicationError("it enters no call");
  const RankGroup& group = last->call.group;
  ranks_[size_t(r)].entered = Entered{last->call, text};
  std::vector<const Call*> calls(ranks_.size());
  std::string texts;
  int missing = std::popcount(group.number ? group.ranks : all);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto& entered = ranks_[i].entered;
    if (!entered || entered->call.group != group) continue;
    calls[i] = &entered->call;
    texts += WireWriter().text(entered->text).take();
    --missing;
  }
  if (missing > 0) return;
  if (const std::string why = mismatch_text(calls); !why.empty()) return fail(why);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!calls[i]) continue;
    Rank& rank = ranks_[i];
    rank.entered.reset();
    rank.flight.change(rank.flight.calls() - 1, CallState::moving);
    if (!rank.gone)
      rank.connection->send(uint8_t(ControlMessage::met), WireWriter().text(texts).take());
  }
}

// Fails if a rank waits for one that has ended, or ranks wait for each other.
void ControlServer::check_waiting() {
  Waits waits;
  uint64_t ended = 0;
  for (const Rank& rank : ranks_) {
    ended |= uint64_t(rank.ended) << waits.size();
    waits.emplace_back();
    if (rank.entered) waits.back() = rank.entered->call;
  }
  fail(stuck_text(waits, ended, flights()));
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
  check_silence(now, !overdue.empty() || (failing_ && failing_->rank >= 0));
  fail(overdue);
  if (failed()) return;
  if (failing_)  // a late rank may come to the call in which the others differ
    broadcast(ControlMessage::send_flight, WireWriter().put(asked_).take());
  else if (const std::string text = first_mismatch_text(flights()); !text.empty())
    fail({text, ""}, Failing::Cause::mismatch);
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

// A failure whose cause is known takes the place of one whose cause is not.
void ControlServer::fail(const RunFailure& failure, Failing::Cause cause, int rank) {
  const bool empty = failure.why.empty() && cause == Failing::Cause::known;
  if (over_ || empty || (failing_ && failing_->cause <= cause)) return;
  failing_ = Failing{failure, cause, rank, steady_nanoseconds() + kToAnswer};
  broadcast(ControlMessage::send_flight, WireWriter().put(++asked_).take());
}

std::string ControlServer::found_cause() const {
  const std::string why = failing_->failure.why;
  std::string cause = first_mismatch_text(flights());
  // The ranks may have gone on for so long that no record has the call in which they differed.
  if (failing_->cause == Failing::Cause::mismatch) return cause.empty() ? why : cause;
  const int rank = failing_->rank;
  const auto call = rank < 0 ? std::nullopt : ranks_[size_t(rank)].flight.in_flight();
  if (cause.empty() && rank >= 0 && !(call && call->call.point_to_point()))
    cause = missing_text(rank);
  return cause.empty() || why.empty() ? cause + why : str(cause, ". So ", why);
}

// Tells all ranks how the run ended. A rank that died, and made the call of another one fail, is
// noticed before.
void ControlServer::publish(int64_t now) {
  if (over_) return;
  if (!failing_) {
    over_ = std::ranges::all_of(ranks_, &Rank::ended);
    if (over_) broadcast(ControlMessage::over, "");
    return;
  }
  const bool waits_for_more = failing_->cause == Failing::Cause::mismatch || !all_answered();
  if (waits_for_more && now < failing_->until) return;
  const std::string why = failed() ? failing_->failure.why : found_cause();
  std::string report = str("communication failed: ", why, "\n");
  for (int r = 0; r < int(ranks_.size()); ++r)
    report += flight_report(r, ranks_[size_t(r)].flight, ranks_[size_t(r)].ended, now);
  {
    const std::lock_guard lock(mutex_);
    report_ = report;
  }
  broadcast(ControlMessage::failure, WireWriter().text(why).text(failing_->failure.detail).take());
  over_ = true;
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

std::string ControlServer::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace zl
