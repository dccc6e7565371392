#include "dist/processes/remote_control.h"

#include <algorithm>
#include <map>
#include <utility>

#include "dist/processes/call_wire.h"
#include "tensor/error.h"

namespace zl {

// Rank 0 has numbers of its own for what this rank records.
class RemoteLine::RemoteAgreement final : public Agreement {
 public:
  explicit RemoteAgreement(RemoteLine& line) : line_(line) {}

  int64_t agree(const Call& call, const EventStream& events) override {
    const bool meets = !trusted_ || call.kind == Collective::barrier;
    const int64_t record =
        begin(call, events, meets ? FlightRecord::State::waiting : FlightRecord::State::posted);
    if (!meets) {
      if (const std::string why = line_.waiting_.mismatch(line_.rank_, call); !why.empty())
        (void)fail(why);
      if (failed()) throw_failure(call);
      return record;
    }
    theirs_[record] =
        number(ask(LineMessage::agree, call, question(call, events).put(trusted_).take()));
    line_.flight_.change(record, FlightRecord::State::moving);
    return record;
  }
  void tell(int64_t record, FlightRecord::State state) override {
    line_.flight_.change(record, state);
    const auto theirs = theirs_.find(record);
    if (theirs == theirs_.end()) return;
    line_.send(LineMessage::tell, WireWriter().put(theirs->second).put(state).take());
    if (state == FlightRecord::State::done) theirs_.erase(theirs);
  }
  std::vector<std::string> exchange(const Call& call, const std::string& text,
                                    const EventStream& events) override {
    const int64_t record = begin(call, events, FlightRecord::State::waiting);
    const std::string answer =
        ask(LineMessage::exchange, call, question(call, events).put(trusted_).text(text).take());
    std::vector<std::string> all;
    for (WireReader wire(answer); !wire.at_end();) all.push_back(wire.text());
    line_.flight_.change(record, FlightRecord::State::done);
    return all;
  }
  void trust_calls() override { trusted_ = true; }

  int64_t post(const Call& call, const EventStream& events) override {
    const int64_t record = begin(call, events, FlightRecord::State::posted);
    letters_[record] = {call, number(ask(LineMessage::post, call, question(call, events).take())),
                        false};
    return record;
  }
  void await(int64_t letter) override {
    line_.flight_.change(letter, FlightRecord::State::waiting);
    wait_for(letter);
    line_.flight_.change(letter, FlightRecord::State::done);
  }
  bool has_met(int64_t letter) const override { return letters_.at(letter).met; }
  void withdraw(int64_t letter, bool unwinding) noexcept override {
    const auto found = letters_.find(letter);
    if (found == letters_.end()) return;
    try {
      if (!failed())
        (void)line_.ask(LineMessage::withdraw,
                        WireWriter().put(found->second.theirs).put(unwinding).take());
    } catch (const std::exception&) {  // no memory: the line dies soon, and its letters with it
    }
    letters_.erase(found);
  }

  bool fail(const std::string& why) override {
    line_.report_failure(LineMessage::fail,
                         WireWriter().text(why).text(encode(line_.flight_)).take(), why);
    return false;  // rank 0 says why all have failed
  }
  bool failed() const override { return line_.failed_; }

 protected:
  std::string told(const Call& call) override {
    line_.flight_.fail();
    return str("rank ", line_.rank_, " in ", describe(call), ": ", line_.failure().why);
  }

 private:
  struct Letter {
    Call call;
    int64_t theirs;
    bool met;
  };

  int64_t begin(const Call& call, const EventStream& events, FlightRecord::State state) {
    if (failed()) throw_failure(call);
    return line_.flight_.begin(call, events, state);
  }
  static WireWriter question(const Call& call, const EventStream& events) {
    WireWriter wire;
    put_call(wire, call, events);
    return wire;
  }
  static int64_t number(const std::string& answer) { return WireReader(answer).get<int64_t>(); }
  std::string ask(LineMessage kind, const Call& call, const std::string& question) {
    const auto answer = line_.ask(kind, question);
    if (!answer) throw_failure(call);
    return *answer;
  }
  // Waits for `letter`, and learns which others have met meanwhile.
  void wait_for(int64_t letter) {
    WireWriter wire;
    wire.put(letters_.at(letter).theirs);
    for (const auto& [record, open] : letters_)
      if (!open.met) wire.put(open.theirs);
    const std::string answer = ask(LineMessage::await, letters_.at(letter).call, wire.take());
    WireReader met(answer);
    for (auto& [record, open] : letters_)
      if (!open.met) open.met = met.get<bool>();
  }

  RemoteLine& line_;
  bool trusted_ = false;
  std::map<int64_t, int64_t> theirs_;  // by our records: what rank 0 calls them
  std::map<int64_t, Letter> letters_;  // by our records
};

RemoteLine::RemoteLine(int rank, Connection connection, std::chrono::milliseconds timeout)
    : rank_(rank),
      timeout_(timeout),
      sign_interval_(sign_interval(timeout)),
      patience_(timeout.count() > 0 ? timeout : kNoHurry),
      connection_(std::move(connection.socket)),
      reader_(std::move(connection.reader)),
      alive_(steady_nanoseconds()),
      ear_([this] { listen(); }) {}

RemoteLine::~RemoteLine() {
  closing_ = true;
  ear_.join();
}

std::unique_ptr<Agreement> RemoteLine::agreement() {
  return std::make_unique<RemoteAgreement>(*this);
}

void RemoteLine::send(LineMessage kind, std::string_view body) {
  const std::lock_guard lock(sending_);
  if (!send_message(connection_, uint8_t(kind), body, patience_))
    connection_.hang_up();  // the ear says the rest
}

std::optional<std::string> RemoteLine::ask(LineMessage kind, std::string_view body) {
  {
    const std::lock_guard lock(mutex_);
    answer_.reset();
  }
  send(kind, body);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return answer_ || failed_; });
  return std::exchange(answer_, {});
}

void RemoteLine::report_failure(LineMessage kind, std::string_view body, const std::string& why) {
  if (!failed_) send(kind, body);
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kVerdict, [&] { return failed_.load(); })) return;
  lock.unlock();
  lose(str(why, "; and rank 0 does not answer"));
}

void RemoteLine::fail(const LineFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = failure;
  failed_ = true;
  changed_.notify_all();
}

void RemoteLine::stopped(const LineFailure& failure) {
  report_failure(LineMessage::stopped, WireWriter().text(failure.why).text(failure.detail).take(),
                 failure.why);
}

void RemoteLine::ended() { send(LineMessage::ended, ""); }

LineFailure RemoteLine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string RemoteLine::report() const {
  const std::lock_guard lock(mutex_);
  return lost_ ? flight_report(rank_, flight_, false, steady_nanoseconds()) : "";
}

void RemoteLine::lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (over_ || failed_) return;
  lost_ = true;
  failure_ = {why, ""};
  failed_ = true;
  changed_.notify_all();
}

bool RemoteLine::watch() {
  const int64_t now = steady_nanoseconds();
  {
    const std::lock_guard lock(mutex_);
    if (over_ || failed_) return true;
  }
  if (was_stopped(std::exchange(last_watch_, now), now)) alive_ = now;
  if (timeout_.count() > 0 && now - alive_ > std::chrono::nanoseconds(timeout_).count()) {
    lose(str("rank 0 has given no sign of life for ", human_time(now - alive_),
             ": its process is stopped, or its machine or the network is gone"));
    return true;
  }
  if (now - last_sign_ > std::chrono::nanoseconds(sign_interval_).count()) {
    last_sign_ = now;
    const std::unique_lock lock(sending_,
                                std::try_to_lock);  // bytes that are under way say as much
    if (lock && !send_message(connection_, uint8_t(LineMessage::flight), encode(flight_), kUnread))
      connection_.hang_up();
  }
  return failed_;
}

void RemoteLine::listen() {
  while (!closing_) {
    try {
      Message message;
      const int64_t before = reader_.received();
      const auto state =
          reader_.read(connection_, message, std::chrono::steady_clock::now() + kGlance);
      if (reader_.received() > before) alive_ = steady_nanoseconds();
      if (state == MessageReader::State::waiting) continue;
      if (state == MessageReader::State::ended)
        return lose(
            "rank 0 has died: its process ended without a word (killed, out of memory, or an exit "
            "of its own)");
      if (state != MessageReader::State::message)
        throw CommunicationError("it sends what is no message");
      hear(message);
    } catch (const std::exception& error) {
      return lose(str("rank 0: ", error.what()));
    }
  }
}

void RemoteLine::hear(const Message& message) {
  WireReader wire(message.body);
  switch (LineMessage(message.kind)) {
    case LineMessage::answer: {
      const std::lock_guard lock(mutex_);
      answer_ = message.body;
      changed_.notify_all();
      return;
    }
    case LineMessage::failure: {
      const std::string why = wire.text();
      return fail({why, wire.text()});
    }
    case LineMessage::send_flight: return send(LineMessage::flight, encode(flight_));
    case LineMessage::waits: {
      const int other = wire.get<int>();
      waiting_.waits_in(other, get_call(wire, heard_));
      if (const std::string why = waiting_.mismatch(rank_, flight_); !why.empty())
        send(LineMessage::fail, WireWriter().text(why).text(encode(flight_)).take());
      return;
    }
    case LineMessage::over: {
      const std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
      return;
    }
    default: return;
  }
}

}  // namespace zl
