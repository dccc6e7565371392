#include "dist/processes/rendezvous_host.h"

#include <algorithm>

#include "dist/processes/call_wire.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 300ms;  // for the others to read why, and to hang up

std::string as_bytes(const LineFailure& failure) {
  return WireWriter().text(failure.why).text(failure.detail).take();
}

}  // namespace

// Rank 0 itself, which needs no wire.
class MeetingHost::Rank0 final : public MeetingAgreement {
 public:
  explicit Rank0(MeetingHost& host) : MeetingAgreement(host.meeting_, 0), host_(host) {}

  int64_t agree(const Call& call, const EventStream& events) override {
    if (!host_.trusted_ || call.kind == Collective::barrier) {
      if (host_.trusted_) host_.waits_in(0, call);
      return MeetingAgreement::agree(call, events);
    }
    const int64_t record = meeting().trust(
        0, call,
        events);  // first recorded, then compared: whoever waits does it the other way round
    if (const std::string why = host_.waiting_.mismatch(0, call); !why.empty()) {
      meeting().fail(why);
      throw_failure(call);
    }
    return record;
  }
  std::vector<std::string> exchange(const Call& call, const std::string& text,
                                    const EventStream& events) override {
    if (host_.trusted_) host_.waits_in(0, call);
    return MeetingAgreement::exchange(call, text, events);
  }
  void trust_calls() override { host_.trusted_ = true; }
  bool fail(const std::string& why) override {
    host_.judge(0, why);
    return false;
  }

 private:
  MeetingHost& host_;
};

MeetingHost::MeetingHost(std::vector<Connection> connections, std::chrono::milliseconds timeout)
    : size_(int(connections.size())),
      timeout_(timeout),
      sign_interval_(sign_interval(timeout)),
      meeting_(size_, timeout),
      patience_(timeout.count() > 0 ? timeout : kNoHurry) {
  for (Connection& connection : connections) {
    RemoteRank& remote = remotes_.emplace_back();
    remote.connection = std::move(connection.socket);
    remote.reader = std::move(connection.reader);
    remote.alive = steady_nanoseconds();
  }
  try {
    for (int r = 1; r < size_; ++r) {
      remotes_[size_t(r)].ear = std::jthread([this, r] { listen(r); });
      remotes_[size_t(r)].voice = std::jthread([this, r] { speak(r); });
    }
  } catch (const std::system_error&) {
    end_threads();
    throw CommunicationError(
        str("the system gives rank 0 no threads for ", size_ - 1, " other ranks; try fewer"));
  }
}

MeetingHost::~MeetingHost() {
  if (!meeting_.failed() && !said_over_) meeting_.fail("rank 0 has ended");
  (void)watch();
  const auto until = std::chrono::steady_clock::now() + kFarewell;
  for (RemoteRank& remote : remotes_)
    if (remote.connection.open()) remote.connection.finish_sending();
  const auto here = [](const RemoteRank& remote) {
    return remote.connection.open() && !remote.gone;
  };
  while (std::ranges::any_of(remotes_, here) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(1ms);
  end_threads();
}

void MeetingHost::end_threads() {
  over_ = true;
  for (RemoteRank& remote : remotes_) {
    const std::lock_guard lock(remote.mutex);
    remote.asked.notify_all();
  }
  for (RemoteRank& remote : remotes_) {
    if (remote.ear.joinable()) remote.ear.join();
    if (remote.voice.joinable()) remote.voice.join();
  }
}

std::unique_ptr<Agreement> MeetingHost::agreement() { return std::make_unique<Rank0>(*this); }

void MeetingHost::ended() {
  rank0_ended_ = true;
  meeting_.rank_ended(0);
}

LineFailure MeetingHost::failure() const {
  const std::lock_guard lock(mutex_);
  return {meeting_.failure(), detail_};
}

void MeetingHost::fail(const LineFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (meeting_.fail(failure.why)) detail_ = failure.detail;
}

void MeetingHost::send(int rank, LineMessage kind, std::string_view body) {
  RemoteRank& remote = remotes_[size_t(rank)];
  const std::lock_guard lock(remote.sending);
  if (remote.gone || send_message(remote.connection, uint8_t(kind), body, patience_)) return;
  if (!remote.ended) meeting_.fail(str("rank ", rank, " does not read what it is sent"));
  remote.connection.hang_up();
}

bool MeetingHost::send_if_free(int rank, LineMessage kind, std::string_view body) {
  RemoteRank& remote = remotes_[size_t(rank)];
  const std::unique_lock lock(remote.sending, std::try_to_lock);
  if (!lock) return false;
  if (!remote.gone && !send_message(remote.connection, uint8_t(kind), body, kUnread))
    remote.connection.hang_up();
  return true;
}

void MeetingHost::broadcast(LineMessage kind, std::string_view body, int but) {
  for (int r = 1; r < size_; ++r)
    if (r != but) send(r, kind, body);
}

// Ranks that trust calls do not come to the meeting, so they are told who waits there.
void MeetingHost::waits_in(int rank, const Call& call) {
  waiting_.waits_in(rank, call);
  WireWriter wire;
  EventStream nothing(rank, 1);
  wire.put(rank);
  put_call(wire, call, nothing);
  broadcast(LineMessage::waits, wire.take(), rank);
  if (const std::string why = waiting_.mismatch(0, meeting_.flight(0)); !why.empty())
    meeting_.fail(why);
}

void MeetingHost::listen(int rank) {
  RemoteRank& remote = remotes_[size_t(rank)];
  while (!over_) {
    try {
      Message message;
      const int64_t before = remote.reader.received();
      const auto state = remote.reader.read(remote.connection, message,
                                            std::chrono::steady_clock::now() + kGlance);
      if (remote.reader.received() > before) remote.alive = steady_nanoseconds();
      if (state == MessageReader::State::waiting) continue;
      if (state == MessageReader::State::message) {
        hear(rank, message);
        continue;
      }
      // Where one message begins after these bytes nobody knows, so nothing more can be heard; it
      // is told of the failure all the same.
      if (state != MessageReader::State::ended)
        return (void)meeting_.fail(str("rank ", rank, " sends what is no message"));
      if (!remote.ended)
        meeting_.fail(str("rank ", rank,
                          " has died: its process ended without a word (killed, out of memory, or "
                          "an exit of its own); ",
                          last_seen(rank, flight(rank), steady_nanoseconds())));
      remote.gone = true;  // only now: who sees it sees the failure, too
      return;
    } catch (const std::exception& error) {
      meeting_.fail(str("rank ", rank, ": ", error.what()));
    }
  }
}

void MeetingHost::hear(int rank, const Message& message) {
  RemoteRank& remote = remotes_[size_t(rank)];
  WireReader wire(message.body);
  switch (LineMessage(message.kind)) {
    case LineMessage::tell: {
      const auto record = wire.get<int64_t>();
      return meeting_.tell(rank, record, wire.get<FlightRecord::State>());
    }
    case LineMessage::flight:
      decode(message.body, remote.heard, remote.own);
      ++remote.flights;
      return;
    case LineMessage::fail: {
      const std::string why = wire.text();
      decode(wire.text(), remote.heard, remote.own);
      ++remote.flights;
      return judge(rank, why);
    }
    case LineMessage::stopped: {
      const std::string why = wire.text();
      return fail({why, wire.text()});
    }
    case LineMessage::ended: remote.ended = true; return meeting_.rank_ended(rank);
    default: {  // a question
      const std::lock_guard lock(remote.mutex);
      remote.questions.push_back(message);
      remote.asked.notify_all();
    }
  }
}

void MeetingHost::speak(int rank) {
  RemoteRank& remote = remotes_[size_t(rank)];
  MeetingAgreement agreement(meeting_, rank);
  for (;;) {
    std::unique_lock lock(remote.mutex);
    remote.asked.wait(lock, [&] { return over_ || !remote.questions.empty(); });
    if (over_) return;
    const Message question = std::move(remote.questions.front());
    remote.questions.pop_front();
    lock.unlock();
    try {
      send(rank, LineMessage::answer, answer(agreement, remote.said, question, rank));
    } catch (const std::exception&
                 error) {  // all are told by watch(); mostly it is what they all know already
      meeting_.fail(str("rank ", rank, ": ", error.what()));
    }
  }
}

std::string MeetingHost::answer(Agreement& agreement, EventStream& events, const Message& question,
                                int rank) {
  WireReader wire(question.body);
  WireWriter answer;
  switch (LineMessage(question.kind)) {
    case LineMessage::agree: {
      const Call call = get_call(wire, events);
      if (wire.get<bool>()) waits_in(rank, call);
      answer.put(agreement.agree(call, events));
      break;
    }
    case LineMessage::exchange: {
      const Call call = get_call(wire, events);
      if (wire.get<bool>()) waits_in(rank, call);
      const std::vector<std::string> all = agreement.exchange(call, wire.text(), events);
      for (const std::string& text : all) answer.text(text);
      break;
    }
    case LineMessage::post: {
      const Call call = get_call(wire, events);
      answer.put(agreement.post(call, events));
      break;
    }
    case LineMessage::await:
      agreement.await(wire.get<int64_t>());
      while (!wire.at_end()) answer.put(agreement.has_met(wire.get<int64_t>()));
      break;
    case LineMessage::withdraw: {
      const auto letter = wire.get<int64_t>();
      agreement.withdraw(letter, wire.get<bool>());
      break;
    }
    default: break;
  }
  return answer.take();
}

void MeetingHost::check_signs_of_life() {
  const int64_t now = steady_nanoseconds();
  for (int r = 1; r < size_ && timeout_.count() > 0; ++r) {
    const RemoteRank& remote = remotes_[size_t(r)];
    if (!remote.ended && !remote.gone &&
        now - remote.alive > std::chrono::nanoseconds(timeout_).count())
      meeting_.fail(str("rank ", r, " has given no sign of life for ",
                        human_time(now - remote.alive),
                        ": its process is stopped, or its machine or the network is gone; ",
                        last_seen(r, flight(r), now)));
  }
  if (now - last_sign_ < std::chrono::nanoseconds(sign_interval_).count()) return;
  last_sign_ = now;
  for (int r = 1; r < size_; ++r)
    (void)send_if_free(r, LineMessage::alive, "");  // bytes that are under way say as much
}

bool MeetingHost::watch() {
  const int64_t now = steady_nanoseconds();
  if (was_stopped(last_watch_,
                  now)) {  // with all threads of this process; the others wait their time anew
    meeting_.resumed();
    for (RemoteRank& remote : remotes_) remote.alive = now;
  }
  last_watch_ = now;
  if (!meeting_.failed()) {
    meeting_.check_deadlines();
    check_signs_of_life();
  }
  if (meeting_.failed() && !failure_sent_) {
    collect(-1, kFlightsToReport, [] { return false; });
    report_ = str("communication failed: ", meeting_.failure(), "\n", flights());
    for (int r = 1; r < size_; ++r)  // who does not read must not keep it from the others
      if (!send_if_free(r, LineMessage::failure, as_bytes(failure())))
        remotes_[size_t(r)].connection.hang_up();
    failure_sent_ = true;
  }
  const auto done = [](const RemoteRank& remote) {
    return !remote.connection.open() || remote.ended || remote.gone;
  };
  const bool well = rank0_ended_ && std::ranges::all_of(remotes_, done) && !meeting_.failed();
  if (well && !said_over_) {
    broadcast(LineMessage::over, "");
    said_over_ = true;
  }
  return said_over_ || failure_sent_;
}

}  // namespace zl
