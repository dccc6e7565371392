#include "dist/meeting_host.h"

#include <algorithm>

#include "dist/call_wire.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 50ms;      // how soon an ear notices that all is over
constexpr auto kPatience = 300ms;   // for a rank to read why
constexpr auto kSending = 2s;       // to a rank that does not read

std::string as_bytes(const LineFailure& failure) { return WireWriter().text(failure.why).text(failure.detail).take(); }

}  // namespace

// Rank 0 itself, which needs no wire.
class MeetingHost::Rank0 final : public MeetingAgreement {
 public:
  explicit Rank0(MeetingHost& host) : MeetingAgreement(host.meeting_, 0), host_(host) {}

  int64_t agree(const Call& call, const EventStream& events) override {
    if (!host_.trusted_ || call.kind == Collective::barrier) {
      if (host_.trusted_) host_.stands(0, call);
      return MeetingAgreement::agree(call, events);
    }
    if (const std::string why = host_.standing_.mismatch(0, call); !why.empty()) meeting().fail(why);
    return meeting().trust(0, call, events);
  }
  std::vector<std::string> exchange(const Call& call, const std::string& text, const EventStream& events) override {
    if (host_.trusted_) host_.stands(0, call);
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
    : size_(int(connections.size())), timeout_(timeout), sign_(std::clamp<std::chrono::milliseconds>(timeout / 4, 50ms, 1s)), meeting_(size_, timeout) {
  for (Connection& connection : connections) {
    Remote& remote = remotes_.emplace_back();
    remote.connection = std::move(connection.socket);
    remote.reader = std::move(connection.reader);
    remote.alive = steady_nanoseconds();
  }
  for (int r = 1; r < size_; ++r) {
    remotes_[size_t(r)].ear = std::jthread([this, r] { listen(r); });
    remotes_[size_t(r)].voice = std::jthread([this, r] { speak(r); });
  }
}

MeetingHost::~MeetingHost() {
  if (!meeting_.failed() && !said_over_) meeting_.fail("rank 0 has ended");
  (void)watch();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (Remote& remote : remotes_)
    if (remote.connection.open()) remote.connection.finish_sending();
  const auto here = [](const Remote& remote) { return remote.connection.open() && !remote.gone; };
  while (std::ranges::any_of(remotes_, here) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  over_ = true;
  for (Remote& remote : remotes_) {
    const std::lock_guard lock(remote.mutex);
    remote.asked.notify_all();
  }
  for (Remote& remote : remotes_) {
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
  Remote& remote = remotes_[size_t(rank)];
  const std::lock_guard lock(remote.sending);
  if (!remote.gone && !send_message(remote.connection, uint8_t(kind), body, deadline_in(kSending))) remote.gone = true;
}

void MeetingHost::tell_all(LineMessage kind, std::string_view body, int but) {
  for (int r = 1; r < size_; ++r)
    if (r != but) send(r, kind, body);
}

// Whoever trusts calls does not come here by itself.
void MeetingHost::stands(int rank, const Call& call) {
  standing_.stands(rank, call);
  WireWriter wire;
  EventStream nothing(rank, 1);
  wire.put(rank);
  put_call(wire, call, nothing);
  tell_all(LineMessage::stands, wire.take(), rank);
  if (const std::string why = standing_.mismatch(0, meeting_.flight(0)); !why.empty()) meeting_.fail(why);
}

void MeetingHost::listen(int rank) {
  Remote& remote = remotes_[size_t(rank)];
  while (!over_) {
    Message message;
    const auto state = remote.reader.read(remote.connection, message, std::chrono::steady_clock::now() + kGlance);
    if (state == MessageReader::State::waiting) continue;
    if (state == MessageReader::State::message) {
      remote.alive = steady_nanoseconds();
      try {
        hear(rank, message);
      } catch (const std::exception& error) {
        meeting_.fail(str("rank ", rank, ": ", error.what()));
      }
      continue;
    }
    if (!remote.ended)
      meeting_.fail(str("rank ", rank, " has died: its process ended without a word (killed, out of memory, or an exit of its own); ",
                        last_seen(rank, flight(rank), steady_nanoseconds())));
    remote.gone = true;
    return;
  }
}

void MeetingHost::hear(int rank, const Message& message) {
  Remote& remote = remotes_[size_t(rank)];
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
    case LineMessage::ended:
      remote.ended = true;
      return meeting_.rank_ended(rank);
    default: {  // a question
      const std::lock_guard lock(remote.mutex);
      remote.questions.push_back(message);
      remote.asked.notify_all();
    }
  }
}

void MeetingHost::speak(int rank) {
  Remote& remote = remotes_[size_t(rank)];
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
    } catch (const std::exception& error) {  // all are told by watch(); mostly it is what they all know already
      meeting_.fail(str("rank ", rank, ": ", error.what()));
    }
  }
}

std::string MeetingHost::answer(Agreement& agreement, EventStream& events, const Message& question, int rank) {
  WireReader wire(question.body);
  WireWriter answer;
  switch (LineMessage(question.kind)) {
    case LineMessage::agree: {
      const Call call = get_call(wire, events);
      if (wire.get<bool>()) stands(rank, call);
      answer.put(agreement.agree(call, events));
      break;
    }
    case LineMessage::exchange: {
      const Call call = get_call(wire, events);
      if (wire.get<bool>()) stands(rank, call);
      const std::vector<std::string> all = agreement.exchange(call, wire.text(), events);
      for (const std::string& text : all) answer.text(text);
      break;
    }
    case LineMessage::post: {
      const Call call = get_call(wire, events);
      answer.put(agreement.post(call, events));
      break;
    }
    case LineMessage::await: agreement.await(wire.get<int64_t>()); [[fallthrough]];
    case LineMessage::met:
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
  if (timeout_.count() <= 0) return;
  const int64_t now = steady_nanoseconds();
  for (int r = 1; r < size_; ++r) {
    const Remote& remote = remotes_[size_t(r)];
    if (!remote.ended && !remote.gone && now - remote.alive > std::chrono::nanoseconds(timeout_).count())
      meeting_.fail(str("rank ", r, " has given no sign of life for ", human_time(now - remote.alive),
                        ": its process is stopped, or its machine or the network is gone; ", last_seen(r, flight(r), now)));
  }
  if (now - last_sign_ < std::chrono::nanoseconds(sign_).count()) return;
  last_sign_ = now;
  tell_all(LineMessage::alive, "");
}

bool MeetingHost::watch() {
  if (!meeting_.failed()) {
    meeting_.check_deadlines();
    check_signs_of_life();
  }
  if (meeting_.failed() && !told_) {
    collect(-1, 150ms, [] { return false; });
    report_ = str("communication failed: ", meeting_.failure(), "\n", flights());
    tell_all(LineMessage::failure, as_bytes(failure()));
    told_ = true;
  }
  const auto done = [](const Remote& remote) { return !remote.connection.open() || remote.ended || remote.gone; };
  const bool all = rank0_ended_ && std::ranges::all_of(remotes_, done);
  if (all && !told_ && !said_over_) {
    tell_all(LineMessage::over, "");
    said_over_ = true;
  }
  return all || told_;
}

}  // namespace zl
