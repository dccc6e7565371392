#include <poll.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "dist/flight_recorder.h"
#include "dist/processes/control_messages.h"
#include "dist/run_ranks.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kToAnswer = 300 * kMillisecond;  // for the ranks to send their last calls
constexpr auto kToRead = 300ms;                    // for the ranks to read why the run failed
constexpr int64_t kToAsk = 1000 * kMillisecond;    // at most, whether ranks are alive
constexpr size_t kLongestHello = 1 << 20;          // [B]
constexpr auto kToCome = 1000ms;                   // for others to come, and read it too

class ControlServer {
 public:
  ControlServer(const RankStart& rank_0, std::chrono::milliseconds timeout, Socket to_rank_0)
      : timeout_(std::chrono::nanoseconds(timeout).count()),
        ask_every_(timeout_ > 0 ? std::clamp(timeout_ / 4, kToAsk / 20, kToAsk) : kToAsk),
        ranks_(size_t(rank_0.place.size)),
        came_{{0, rank_0}},
        all_must_come_(deadline_in(rank_0.timeout)) {
    const std::string& address = rank_0.place.address;
    const bool local = address == "127.0.0.1" || address == "localhost";
    int& port = came_.at(0).place.port;
    const int first = port;
    for (; port < first + kPorts; ++port) {
      listener_ = listen_on(port, local ? Reach::this_machine : Reach::everywhere);
      if (listener_.open()) break;
    }
    if (!listener_.open())
      throw CommunicationError(str("rank 0 finds no free port among ", first, " to ", port - 1,
                                   "; set ZEROLAB_PORT to the first of ", kPorts,
                                   " that are free, on all ranks"));
    for (const Rank& rank : ranks_) flights_.push_back(&rank.flight);
    let_in(0, std::make_unique<Connection>(std::move(to_rank_0)));
  }

  void serve(const std::stop_token& stop) {
    for (std::optional<Deadline> leave;;) {
      std::vector<pollfd> waiting;
      for (const Rank& rank : ranks_)
        if (!rank.gone()) {
          const bool sent = rank.connection->flush();
          const int events = sent ? POLLIN : POLLIN | POLLOUT;
          waiting.push_back({rank.connection->socket().fd(), short(events), 0});
        }
      (void)::poll(waiting.data(), waiting.size(), 5);
      for (int r = 0; r < int(ranks_.size()); ++r)
        if (!ranks_[size_t(r)].gone()) read(r);
      if (listener_.open()) let_ranks_in();
      const int64_t now = steady_nanoseconds();
      check(now);
      publish(now);
      if (!stop.stop_requested()) continue;
      if (!over_ && !failing_) fail("rank 0 has ended");
      if (!over_) continue;
      if (!leave) leave = Clock::now() + (all_came() ? kToRead : kToCome);
      if (Clock::now() > *leave || (all_came() && std::ranges::all_of(ranks_, &Rank::gone))) return;
    }
  }

 private:
  struct Rank {
    std::unique_ptr<Connection> connection;  // null: it has not come, or has ended
    FlightRecorder flight;                   // as the rank has sent it
    std::optional<std::string> text;         // with which it came to its last call, where it waits
    int64_t answered = 0;                    // the asked_ that it answered last
    bool ended = false;                      // it makes no more calls
    bool gone() const { return !connection; }
  };
  struct Failing {  // the ranks are asked for their last calls, and then hear of it
    RunFailure failure;
    enum class Cause { known, missing_rank, mismatch } cause;  // else still to be found
    int rank;                                                  // on which a call failed
    int64_t until;                                             // [ns]
  };

  // One that comes when the run has failed hears of that at once.
  void let_in(int r, std::unique_ptr<Connection> connection) {
    connection->send(ControlMessage::alive, to_bytes(asked_));
    if (over_) connection->send(ControlMessage::failure, encode(failing_->failure));
    ranks_[size_t(r)].connection = std::move(connection);
  }
  bool all_came() const { return came_.size() == ranks_.size(); }

  // Ranks that have come, by their hello; disconnects other programs.
  void let_ranks_in() {
    for (Socket socket = accept_from(listener_); socket.open(); socket = accept_from(listener_))
      strangers_.push_back(std::make_unique<Connection>(std::move(socket)));
    for (std::unique_ptr<Connection>& one : strangers_) {
      const auto message = one->receive(Clock::now());
      if (one->problem() == kOtherVersion) {
        other_version_ = true;
        one->send(ControlMessage::failure);  // by which it sees the same
      }
      const bool silent = std::chrono::nanoseconds(one->silence()) > kAnswer,
                 goes = message || one->problem() || silent || one->unread() > kLongestHello;
      if (message && message->kind == ControlMessage::hello) admit(one, message->body);
      if (goes) one = nullptr;
    }
    std::erase(strangers_, nullptr);
    if (!all_came()) {
      if (Clock::now() > all_must_come_) fail(missing_text(came_, other_version_));
    } else if (!failing_) {
      listener_ = {};
      strangers_.clear();
      broadcast(ControlMessage::started);
    }
  }

  // A rank that was started differently ends the run, because no other can come in its place.
  void admit(std::unique_ptr<Connection>& stranger, const std::string& hello) try {
    const RankStart one = decode_start(hello);
    if (one.place.run != came_.at(0).place.run) return;
    // One that gave up waiting has disconnected, and will connect again.
    if (stranger->receive(Clock::now()) || stranger->problem()) return;
    const std::string refusal = refusal_text(came_, one);
    if (one.place.rank > 0 && one.place.rank < int(ranks_.size()))
      came_.try_emplace(one.place.rank, one);
    if (refusal.empty()) return let_in(one.place.rank, std::move(stranger));
    stranger->send(ControlMessage::failure, encode(RunFailure{refusal, kInputFailure}));
    fail({refusal, kInputFailure});
  } catch (const CommunicationError&) {  // what it says is no hello
  }

  // All messages that have come from the rank. A connection that ends before the rank has is its
  // death.
  void read(int r) {
    Rank& rank = ranks_[size_t(r)];
    while (const auto message = rank.connection->receive(Clock::now())) try {
        handle(r, *message);
      } catch (const std::exception& error) {
        fail(str("rank ", r, ": ", error.what()));
      }
    const char* const problem = rank.connection->problem();
    if (!problem) return;
    rank.connection.reset();
    rank.flight.set_current(false);
    if (problem != kEnded) fail(str("rank ", r, " sends what is no message"));
    if (!rank.ended)
      fail(listener_.open()
               ? died_text(r)
               : str(died_text(r), "; ", last_seen(r, rank.flight, steady_nanoseconds())));
  }

  void handle(int r, const Message& message) {
    Rank& rank = ranks_[size_t(r)];
    WireReader wire(message.body);
    decode(wire.get<std::string>(), texts_, rank.flight);
    switch (message.kind) {
      case ControlMessage::alive: {
        rank.answered = wire.get<int64_t>();
        // One that waits in a collective was answered, and sent this before the answer came.
        const auto in = rank.flight.in_flight();
        if (!rank.text && in && in->state == CallState::waiting)
          rank.flight.change(rank.flight.calls() - 1, CallState::moving);
        return;
      }
      case ControlMessage::enter: return enter(r, wire.get<std::string>());
      case ControlMessage::failed: {
        const RunFailure failure = decode_failure(wire);
        return wire.get<bool>() ? fail(failure, Failing::Cause::missing_rank, r) : fail(failure);
      }
      case ControlMessage::ended: rank.ended = true; return;
      default: throw CommunicationError("it sends an unknown message");
    }
  }

  // The rank has come to a collective. Answers all of its group when the last one has.
  void enter(int r, const std::string& text) {
    const auto last = ranks_[size_t(r)].flight.last();
    if (!last || !last->call.group.has(r)) throw CommunicationError("it enters no call");
    const RankGroup& group = last->call.group;
    ranks_[size_t(r)].text = text;
    const Waits waits = this->waits();
    std::vector<const Call*> calls(ranks_.size());
    std::string texts;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!group.has(int(i))) continue;
      if (!waits[i] || waits[i]->group != group) return;
      calls[i] = &*waits[i];
      texts += to_bytes(*ranks_[i].text);
    }
    if (const std::string why = mismatch_text(calls); !why.empty()) return fail(why);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!calls[i]) continue;
      Rank& rank = ranks_[i];
      rank.text.reset();
      rank.flight.change(rank.flight.calls() - 1, CallState::moving);
      if (!rank.gone()) rank.connection->send(ControlMessage::met, texts);
    }
  }

  // The collective in which each rank waits for the others.
  Waits waits() const {
    Waits waits(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].text) waits[r] = ranks_[r].flight.last()->call;
    return waits;
  }

  // Fails the run if a rank waits forever or too long, is silent, or made another call.
  void check(int64_t now) {
    if (now - last_asked_ > ask_every_) ask();
    if (failed() || now - last_check_ < 20 * kMillisecond) return;
    if (now - std::exchange(last_check_, now) > 1000 * kMillisecond) resumed_ = now;
    uint64_t ended = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) ended |= uint64_t(ranks_[r].ended) << r;
    fail(stuck_text(waits(), ended, flights_));
    const std::string overdue = overdue_text(flights_, timeout_, resumed_);
    check_silence(now, !overdue.empty() || (failing_ && failing_->rank >= 0));
    fail(overdue);
    if (failed()) return;
    if (failing_)  // a late rank may come to the call in which the others differ
      ask();
    else if (const std::string text = first_mismatch_text(flights_); !text.empty())
      fail({text}, Failing::Cause::mismatch);
  }

  // That a rank is silent says more than the calls that wait for it, and they may have waited for
  // longer than it is silent. So it need not be silent for the whole timeout if `others_wait`.
  void check_silence(int64_t now, bool others_wait) {
    const int64_t least = std::max(timeout_ / 2, std::min(timeout_, 500 * kMillisecond));
    for (int r = 1; r < int(ranks_.size()); ++r) {
      Rank& rank = ranks_[size_t(r)];
      if (rank.gone()) continue;
      const int64_t silence = rank.connection->silence();
      rank.flight.set_current(silence <= 3 * ask_every_);
      if (rank.ended || timeout_ == 0 || silence <= (others_wait ? least : timeout_)) continue;
      rank.flight.set_current(false);
      fail(str(silent_text(r, silence), "; ", last_seen(r, rank.flight, now)));
    }
  }

  // A failure whose cause is known takes the place of one whose cause is not.
  void fail(const RunFailure& failure, Failing::Cause cause = Failing::Cause::known,
            int rank = -1) {
    if (over_ || (failing_ && failing_->cause <= cause)) return;
    failing_ = Failing{failure, cause, rank, steady_nanoseconds() + kToAnswer};
    ++asked_;
    ask();
  }
  void fail(const std::string& why) {
    if (!why.empty()) fail(RunFailure{why});
  }
  bool failed() const { return failing_ && failing_->cause == Failing::Cause::known; }

  std::string found_cause() const {
    const std::string why = failing_->failure.why;
    std::string cause = first_mismatch_text(flights_);
    // The ranks may have gone on for so long that no record has the call in which they differed.
    if (failing_->cause == Failing::Cause::mismatch) return cause.empty() ? why : cause;
    if (cause.empty()) cause = absent_text(failing_->rank);
    return cause.empty() || why.empty() ? cause + why : str(cause, ". So ", why);
  }

  // Ranks that have not come to the last call of `rank`, a collective; "" if all have.
  std::string absent_text(int rank) const {
    const auto last = ranks_[size_t(rank)].flight.last();
    std::string text;
    for (int r = 0; r < int(ranks_.size()); ++r)
      if (const FlightRecorder& flight = ranks_[size_t(r)].flight;
          last && last->call.group.has(r) && !has_come(flight, last->call, rank))
        text += str(text.empty() ? "" : "; ",
                    "not there: ", last_seen(r, flight, steady_nanoseconds()));
    return text;
  }

  // Tells all ranks how the run ended; if it failed, once they have answered or had time to. A rank
  // that died, and made the call of another one fail, is noticed before.
  void publish(int64_t now) {
    if (over_) return;
    if (!failing_) {
      over_ = std::ranges::all_of(ranks_, &Rank::ended);
      if (over_) broadcast(ControlMessage::over);
      return;
    }
    const bool all_answered = std::ranges::all_of(
        ranks_, [this](const Rank& rank) { return rank.gone() || rank.answered == asked_; });
    const bool may_say_more = failing_->cause == Failing::Cause::mismatch || !all_answered;
    if (may_say_more && now < failing_->until) return;
    RunFailure& failure = failing_->failure;
    if (!failed()) failure.why = found_cause();
    if (!listener_.open()) failure.report = str("communication failed: ", failure.why, "\n");
    for (int r = 0; r < int(ranks_.size()) && !listener_.open(); ++r)
      failure.report += flight_report(r, ranks_[size_t(r)].flight, ranks_[size_t(r)].ended, now);
    for (const Rank& rank : ranks_) {
      if (!rank.gone()) rank.connection->send(ControlMessage::failure, encode(failure));
      failure.report.clear();  // one rank is enough to print it
    }
    over_ = true;
  }

  // For their last calls, and whether they are alive.
  void ask() {
    broadcast(ControlMessage::alive, to_bytes(asked_));
    last_asked_ = steady_nanoseconds();
  }
  void broadcast(ControlMessage kind, const std::string& body = "") {
    for (const Rank& rank : ranks_)
      if (!rank.gone()) rank.connection->send(kind, body);
  }

  const int64_t timeout_, ask_every_;  // [ns]
  std::vector<Rank> ranks_;
  Flights flights_;  // what they have sent of their calls
  RankStarts came_;
  Socket listener_;  // open until all ranks have come
  const Deadline all_must_come_;
  std::vector<std::unique_ptr<Connection>> strangers_;  // that have not said yet who they are
  bool other_version_ = false;                          // one of them was
  EventStream texts_;                                   // keeps the texts of calls
  std::optional<Failing> failing_;
  int64_t asked_ = 0;                        // changes when an answer must be a new one
  int64_t last_asked_ = 0, last_check_ = 0;  // [ns]
  int64_t resumed_ = 0;                      // [ns] until when this process was last stopped
  bool over_ = false;                        // all ranks know how the run ended
};

}  // namespace

std::unique_ptr<Connection> start_control_server(const RankStart& self,
                                                 std::chrono::milliseconds timeout,
                                                 std::jthread& server) {
  auto [near, far] = socket_pair();
  const auto serving = std::make_shared<ControlServer>(self, timeout, std::move(near));
  server = start_thread("control server",
                        [serving](const std::stop_token& stop) { serving->serve(stop); });
  return std::make_unique<Connection>(std::move(far));
}

}  // namespace zl
