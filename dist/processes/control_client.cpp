#include "dist/processes/control_client.h"

#include <algorithm>
#include <utility>

#include "dist/ordered/polling.h"
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
  if (call.point_to_point() || (only_on_timeout_ && call.kind != Collective::barrier))
    return begin(call, events, CallState::posted);
  const int64_t record = begin(call, events, CallState::waiting);
  (void)meet(call, "");
  set_state(record, CallState::moving);
  return record;
}

std::vector<std::string> ControlClient::all_gather_object(const Call& call, const std::string& text,
                                                          const EventStream& events) {
  const int64_t record = begin(call, events, CallState::waiting);
  const std::string texts = meet(call, text);
  std::vector<std::string> all;
  for (WireReader wire(texts); !wire.at_end();) all.push_back(wire.text());
  set_state(record, CallState::done);
  return all;
}

std::string ControlClient::meet(const Call& call, const std::string& text) {
  send(ControlMessage::enter, WireWriter().text(text).take());
  const auto done = [this] { return texts_ || failed_; };
  std::unique_lock lock(mutex_);
  if (!action_) changed_.wait(lock, done);
  for (int polls = 1; !done(); ++polls) {
    lock.unlock();
    action_();
    lock.lock();
    changed_.wait_for(lock, std::max(pause_after_poll(polls), 10us), done);
  }
  const auto texts = std::exchange(texts_, {});
  lock.unlock();
  if (!texts) throw_failure(call);
  return *texts;
}

void ControlClient::throw_failure(const Call& call) {
  flight_.fail();
  throw CommunicationError(str("rank ", rank_, " in ", describe(call), ": ", failure().why));
}

void ControlClient::fail(const RunFailure& failure, bool find_cause) {
  if (!failed())
    send(ControlMessage::failed,
         WireWriter().text(failure.why).text(failure.detail).put(find_cause).take(), true);
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kVerdict, [&] { return failed_.load(); })) return;
  lock.unlock();
  lose_server(str(failure.why, "; and rank 0 does not answer"));
}

void ControlClient::wait_for_start(const std::function<bool()>& interrupted) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, 20ms, [this] { return started_ || failed_; })) {
    if (!interrupted || !interrupted()) continue;
    lock.unlock();
    return stopped({kInterrupted, ""});
  }
}

void ControlClient::ended() { send(ControlMessage::ended, "", true); }

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
    lost_ |= !over_ && !failed_;
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
      texts_ = wire.text();
      break;
    }
    case ControlMessage::started:
    case ControlMessage::over: {
      const std::lock_guard lock(mutex_);
      (message.kind == uint8_t(ControlMessage::over) ? over_ : started_) = true;
      break;
    }
    default: return;
  }
  changed_.notify_all();
}

}  // namespace zl
