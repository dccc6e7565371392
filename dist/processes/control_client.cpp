#include "dist/processes/control_client.h"

#include <algorithm>
#include <utility>

#include "dist/processes/control_server.h"
#include "dist/run_ranks.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

constexpr auto kVerdict = 2s;  // for the server to find the cause of a failure

// A call without a number, such as "joining NCCL", is not the program's.
std::string place(int rank, const Call& call) {
  const std::string doing = call.sequence > 0 ? "in " + describe(call) : std::string(call.name);
  return str("rank ", rank, " ", doing, ": ");
}

}  // namespace

ControlClient::ControlClient(const RankIdentity& self, const BootstrapOptions& options,
                             std::chrono::milliseconds timeout)
    : rank_(self.rank),
      timeout_(std::chrono::nanoseconds(timeout).count()),
      interrupted_(options.interrupted),
      connection_(rank_ == 0 ? start_control_server(self, options, timeout, server_)
                             : find_rank_0(self, options)),
      thread_(start_thread(str("control ", rank_), [this](auto&) { serve(); })) {}

ControlClient::~ControlClient() {
  closing_ = true;
  thread_.join();
}

void ControlClient::wait_for_all() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, 20ms, [&] { return started_ || failed_; })) {
    if (!interrupted_ || !interrupted_()) continue;
    lock.unlock();
    stopped({kInterrupted});
    lock.lock();
  }
  if (!started_) zl::throw_failure(failure_);  // a later failure is thrown by the next call
}

// With the last calls that the server has not seen, or with all if their states may have changed.
void ControlClient::send(ControlMessage kind, const std::string& body, bool all_records) {
  const std::lock_guard lock(sending_);
  const int64_t calls = flight_.calls();
  const int64_t records =
      all_records ? kAllRecords : std::clamp<int64_t>(calls - sent_calls_, 1, kAllRecords);
  connection_->send(uint32_t(kind), WireWriter().text(encode(flight_, records)).take() + body);
  sent_calls_ = calls;
}

int64_t ControlClient::begin(const Call& call, const EventStream& events, CallState state) {
  if (failed()) throw_failure(call);
  return flight_.begin(call, events, state);
}

int64_t ControlClient::require_same_call(const Call& call, const EventStream& events) {
  if (only_on_timeout_ && call.kind != Collective::barrier)
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
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return texts_ || failed_; });
  const auto texts = std::exchange(texts_, {});
  lock.unlock();
  if (!texts) throw_failure(call);
  return *texts;
}

void ControlClient::throw_failure(const Call& call) {
  flight_.fail();
  throw CommunicationError(place(rank_, call) + failure().why);
}

void ControlClient::fail(const Call& call, const std::string& why) {
  stopped({place(rank_, call) + why}, true);
}

void ControlClient::require_running() const {
  if (failed()) throw CommunicationError("another rank has failed");
}

void ControlClient::carry_out(const Call& call, const std::function<void()>& action,
                              const std::function<void()>& then_leave) {
  try {
    require_running();
    return action();
  } catch (const std::exception& error) {
    fail(call, error.what());
  }
  if (then_leave) then_leave();
  throw_failure(call);
}

void ControlClient::stopped(const RunFailure& failure, bool find_cause) {
  if (!failed())
    send(ControlMessage::failed, encode(failure) + WireWriter().put(find_cause).take(), true);
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kVerdict, [&] { return failed_.load(); })) return;
  lock.unlock();
  server_lost(str(failure.why, "; and rank 0 does not answer"));
}

void ControlClient::run_failed(const RunFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (over_ || failed_) return;
  failure_ = failure;
  failed_ = true;
  changed_.notify_all();
}

void ControlClient::server_lost(const std::string& why) {
  run_failed({why, "", flight_report(rank_, flight_, false, steady_nanoseconds())});
}

RunFailure ControlClient::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlClient::serve() try {
  while (!closing_) {
    Message message;
    const auto state = connection_->receive(message, std::chrono::steady_clock::now() + 20ms);
    const int64_t silence = connection_->silence();
    if (state == Connection::State::message)
      handle(message);
    else if (state == Connection::State::ended)
      return server_lost(died_text(0));
    else if (state != Connection::State::waiting)
      return server_lost("rank 0 sends what is no message");
    if (timeout_ > 0 && silence > timeout_) return server_lost(silent_text(0, silence));
  }
} catch (const std::exception& error) {
  server_lost(str("rank 0: ", error.what()));
}

void ControlClient::handle(const Message& message) {
  WireReader wire(message.body);
  const auto kind = ControlMessage(message.kind);
  if (kind == ControlMessage::failure) return run_failed(decode_failure(wire));
  if (kind == ControlMessage::alive) return send(kind, message.body, true);
  const std::lock_guard lock(mutex_);
  if (kind == ControlMessage::met) texts_ = wire.text();
  if (kind == ControlMessage::started) started_ = true;
  if (kind == ControlMessage::over) over_ = true;
  changed_.notify_all();
}

}  // namespace zl
