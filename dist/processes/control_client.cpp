#include "dist/processes/control_client.h"

#include <algorithm>
#include <utility>

#include "dist/polling.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

constexpr auto kVerdict = 2s;  // for the server to find the cause of a failure

}  // namespace

ControlClient::ControlClient(int rank, std::unique_ptr<Connection> connection,
                             std::chrono::milliseconds timeout)
    : rank_(rank),
      timeout_(std::chrono::nanoseconds(timeout).count()),
      alive_interval_(std::chrono::nanoseconds(alive_interval(timeout)).count()),
      connection_(std::move(connection)),
      thread_([this] { serve(); }) {}

ControlClient::~ControlClient() {
  closing_ = true;
  thread_.join();
}

// With the last calls that the server has not seen, or with all if their states may have changed.
void ControlClient::send(ControlMessage kind, const std::string& body, bool all_records) {
  const std::lock_guard lock(sending_);
  const int64_t calls = flight_.calls();
  const int64_t records =
      all_records ? kAllRecords : std::clamp<int64_t>(calls - sent_calls_, 1, kAllRecords);
  connection_->send(uint8_t(kind), WireWriter().text(encode(flight_, records)).take() + body);
  sent_calls_ = calls;
}

int64_t ControlClient::begin(const Call& call, const EventStream& events, CallState state) {
  if (failed()) throw_failure(call);
  return flight_.begin(call, events, state);
}

int64_t ControlClient::require_same_call(const Call& call, const EventStream& events) {
  const bool compares = !only_on_timeout_ || call.kind == Collective::barrier;
  const int64_t record = begin(call, events, compares ? CallState::waiting : CallState::posted);
  if (!compares) return record;
  enter(record, call);
  (void)wait_for_all(record);
  set_state(record, CallState::moving);
  return record;
}

std::vector<std::string> ControlClient::all_gather_object(const Call& call, const std::string& text,
                                                          const EventStream& events) {
  const int64_t record = begin(call, events, CallState::waiting);
  enter(record, call, text);
  const std::string texts = wait_for_all(record);
  std::vector<std::string> all;
  for (WireReader wire(texts); !wire.at_end();) all.push_back(wire.text());
  set_state(record, CallState::done);
  return all;
}

void ControlClient::enter(int64_t record, const Call& call, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    entered_[record] = {call, {}};
  }
  send(ControlMessage::enter, WireWriter().put(record).text(text).take());
}

std::string ControlClient::wait_for_all(int64_t record) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return entered_.at(record).texts || failed_; });
  const Entered entered = entered_.at(record);
  if (!entered.call.point_to_point()) entered_.erase(record);
  lock.unlock();
  if (!entered.texts) throw_failure(entered.call);
  return *entered.texts;
}

void ControlClient::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  if (!action_) return changed_.wait(lock, done);
  for (int polls = 1; !done(); ++polls) {
    lock.unlock();
    action_();
    lock.lock();
    changed_.wait_for(lock, std::max(pause_after_poll(polls), 10us), done);
  }
}

int64_t ControlClient::post(const Call& call, const EventStream& events) {
  const int64_t record = begin(call, events, CallState::posted);
  enter(record, call);
  return record;
}

void ControlClient::wait_for_match(int64_t record) {
  set_state(record, CallState::waiting);
  send(ControlMessage::alive, "", true);
  (void)wait_for_all(record);
  set_state(record, CallState::done);
}

void ControlClient::withdraw(int64_t record, bool unwinding) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (entered_.erase(record) == 0) return;
  }
  try {
    send(ControlMessage::withdraw, WireWriter().put(record).put(unwinding).take());
  } catch (const std::exception&) {  // no memory: the connection ends soon
  }
}

void ControlClient::fail(const std::string& why) {
  if (!failed()) send(ControlMessage::suspect, WireWriter().text(why).take(), true);
  wait_for_failure(why);
}

std::string ControlClient::failure_in(const Call& call) {
  flight_.fail();
  return str("rank ", rank_, " in ", describe(call), ": ", failure().why);
}

void ControlClient::stopped(const RunFailure& failure) {
  if (!failed_)
    send(ControlMessage::stopped, WireWriter().text(failure.why).text(failure.detail).take(), true);
  wait_for_failure(failure.why);
}

void ControlClient::ended() { send(ControlMessage::ended, "", true); }

void ControlClient::wait_for_failure(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kVerdict, [&] { return failed_.load(); })) return;
  lock.unlock();
  lose_server(str(why, "; and rank 0 does not answer"));
}

void ControlClient::run_failed(const RunFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (over_ || failed_) return;
  failure_ = failure;
  failed_ = true;
  changed_.notify_all();
}

void ControlClient::lose_server(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    lost_ = !over_ && !failed_;
  }
  run_failed({why, ""});
}

bool ControlClient::over() const {
  const std::lock_guard lock(mutex_);
  return over_ || failed_;
}

RunFailure ControlClient::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string ControlClient::report() const {
  const std::lock_guard lock(mutex_);
  return lost_ ? flight_report(rank_, flight_, false, steady_nanoseconds()) : "";
}

void ControlClient::serve() {
  int64_t heard = steady_nanoseconds(), last_alive = 0, last_loop = 0;
  while (!closing_) {
    try {
      Message message;
      const int64_t before = connection_->received();
      const auto state = connection_->receive(message, std::chrono::steady_clock::now() + 20ms);
      const int64_t now = steady_nanoseconds();
      if (connection_->received() > before || was_stopped(last_loop, now)) heard = now;
      last_loop = now;
      if (state == Connection::State::message)
        handle(message);
      else if (state == Connection::State::ended)
        return lose_server(
            "rank 0 has died: its process ended without notice (killed, out of memory, or by its "
            "own exit())");
      else if (state != Connection::State::waiting)
        return lose_server("rank 0 sends what is no message");
      if (timeout_ > 0 && now - heard > timeout_)
        return lose_server(str("rank 0 has given no sign of life for ", human_time(now - heard),
                               ": its process is stopped, or its machine or the network is gone"));
      if (now - last_alive > alive_interval_) {
        last_alive = now;
        send(ControlMessage::alive, "", true);
      }
    } catch (const std::exception& error) {
      return lose_server(str("rank 0: ", error.what()));
    }
  }
}

void ControlClient::handle(const Message& message) {
  WireReader wire(message.body);
  switch (ControlMessage(message.kind)) {
    case ControlMessage::send_flight: return send(ControlMessage::flight, message.body, true);
    case ControlMessage::failure: {
      const std::string why = wire.text();
      return run_failed({why, wire.text()});
    }
    case ControlMessage::met: {
      const std::lock_guard lock(mutex_);
      const auto found = entered_.find(wire.get<int64_t>());
      if (found != entered_.end()) found->second.texts = wire.text();
      break;
    }
    case ControlMessage::over: {
      const std::lock_guard lock(mutex_);
      over_ = true;
      break;
    }
    default: return;
  }
  changed_.notify_all();
}

}  // namespace zl
