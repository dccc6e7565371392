#include "dist/processes/process_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "dist/run_ranks.h"
#include "dist/trace/host_id.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

using Clock = std::chrono::steady_clock;

// [ns] How long a rank that says why the run fails waits for rank 0 if there is no timeout.
constexpr int64_t kVerdict = 2'000'000'000;

void require_uninterrupted(const RankStart& self) {
  if (self.options.interrupted && self.options.interrupted())
    throw CommunicationError(kInterrupted);
}

// Asks what listens at `port` to let this rank in. Null if it is not rank 0 of this run: then `why`
// says what it is.
std::unique_ptr<Connection> ask(const RankStart& self, int port, Deadline until, std::string& why) {
  std::string refused;
  Socket socket = connect_to(self.place.address, port, until, refused);
  if (!socket.open()) {
    if (!why.starts_with("at port ")) why = refused;  // a program that was found says more
    return nullptr;
  }
  auto connection = std::make_unique<Connection>(std::move(socket));
  connection->send(ControlMessage::hello, encode(self));
  std::optional<Message> answer;
  while (!answer && !connection->problem() && Clock::now() < until) {
    require_uninterrupted(self);
    answer = connection->receive(std::min<Deadline>(until, Clock::now() + 20ms));
  }
  if (answer && answer->kind == ControlMessage::alive) return connection;
  if (answer && answer->kind == ControlMessage::failure) {
    WireReader wire(answer->body);
    throw InputError(printable(decode_failure(wire).why));
  }
  const char* const problem = answer ? kEnded : connection->problem();
  why = str("at port ", port, " ", problem ? problem : "is a program that does not answer");
  return nullptr;
}

// The connection to rank 0, which has let this rank in. Throws CommunicationError, which says what
// was found at the ports, if rank 0 is not there in time, and InputError if this rank was started
// differently.
std::unique_ptr<Connection> find_rank_0(const RankStart& self) {
  const Deadline deadline = deadline_in(self.timeout);
  const int first = self.place.port;
  std::string why;
  for (std::chrono::milliseconds pause = 20ms;;
       pause = std::min<std::chrono::milliseconds>(pause * 2, 500ms)) {
    for (int port = first; port < first + kPorts; ++port) {
      if (Clock::now() >= deadline && !why.empty()) break;
      require_uninterrupted(self);
      const Deadline until = std::min<Deadline>(deadline, Clock::now() + kAnswer);
      if (auto connection = ask(self, port, until, why)) return connection;
    }
    if (Clock::now() >= deadline)
      throw CommunicationError(str(waited_text(self), " for rank 0 at ", self.place.address, ":",
                                   first, " (or the ", kPorts - 1, " ports after it): ", why,
                                   ". Was rank 0 started, and is MASTER_ADDR its machine? A "
                                   "firewall must let these ports through; a slow start needs a "
                                   "larger --timeout"));
    std::this_thread::sleep_for(pause);
  }
}

// A call without a number, such as "joining NCCL", is not the program's.
std::string place(int rank, const Call& call) {
  const std::string doing = call.sequence > 0 ? "in " + describe(call) : std::string(call.name);
  return str("rank ", rank, " ", doing, ": ");
}

}  // namespace

ControlClient::ControlClient(const RankStart& self, std::chrono::milliseconds timeout,
                             std::function<void(ControlClient&)> watch)
    : rank_(self.place.rank),
      timeout_(std::chrono::nanoseconds(timeout).count()),
      interrupted_(self.options.interrupted),
      watch_(std::move(watch)),
      connection_(rank_ == 0 ? start_control_server(self, timeout, server_) : find_rank_0(self)),
      thread_(start_thread(str("control ", rank_), [this](auto&) { serve(); })) {}

ControlClient::~ControlClient() {
  closing_ = true;
  thread_.join();
}

void ControlClient::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || failed_; });
  if (!started_) zl::throw_failure(failure_);  // a later failure is thrown by the next call
}

// A rank that enters a call, which it does often, sends what is new: else states may have changed.
void ControlClient::send(ControlMessage kind, const std::string& body) {
  const std::lock_guard lock(sending_);
  const int64_t calls = flight_.calls(), news = calls - std::exchange(sent_calls_, calls);
  const int64_t most =
      kind == ControlMessage::enter ? std::clamp<int64_t>(news, 1, kAllRecords) : kAllRecords;
  connection_->send(kind, to_bytes(encode(flight_, most)) + body);
}

std::vector<std::string> ControlClient::all_gather_object(const Call& call, const std::string& text,
                                                          const EventStream& events) {
  auto texts = meet(call, text, events);
  set_state(flight_.calls() - 1, CallState::done);
  return texts;
}

std::vector<std::string> ControlClient::meet(const Call& call, const std::string& text,
                                             const EventStream& events) {
  if (failed()) throw_failure(call);
  const int64_t record = flight_.begin(call, events, CallState::waiting);
  send(ControlMessage::enter, to_bytes(text));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, 1ms, [this] { return texts_ || failed_; })) {
    lock.unlock();  // so that this client's thread can read meanwhile
    if (while_waiting) while_waiting();
    lock.lock();
  }
  auto texts = std::exchange(texts_, {});
  lock.unlock();
  if (!texts) throw_failure(call);
  set_state(record, CallState::moving);
  return std::move(*texts);
}

int64_t ControlClient::require_same_call(const Call& call, const EventStream& events) {
  if (failed()) throw_failure(call);
  if (only_on_timeout_ && call.kind != Collective::barrier)
    return flight_.begin(call, events, CallState::posted);
  (void)meet(call, "", events);
  return flight_.calls() - 1;
}

void ControlClient::throw_failure(const Call& call) {
  flight_.fail();
  throw CommunicationError(place(rank_, call) + failure().why);
}

void ControlClient::fail(const Call& call, const std::string& why) {
  stop({place(rank_, call) + why}, true);
  wait_for_end();
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

void ControlClient::stop(const RunFailure& failure, bool find_cause) {
  if (const std::lock_guard lock(mutex_); said_.empty())
    said_ = failure.why, said_at_ = running_nanoseconds();
  if (!failed()) send(ControlMessage::failed, encode(failure) + to_bytes(find_cause));
}

void ControlClient::ended() {
  send(ControlMessage::ended);
  wait_for_end();
}

void ControlClient::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failed_ || over_; });
}

void ControlClient::run_failed(const RunFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (over_ || failed_) return;
  failure_ = failure;
  failed_ = true;
  changed_.notify_all();
}

RunFailure ControlClient::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlClient::serve() try {
  for (std::string lost; !closing_; watch_(*this)) {
    if (!started_ && interrupted_ && interrupted_()) stop({kInterrupted});
    if (!lost.empty())
      std::this_thread::sleep_for(20ms);
    else if (lost = listen(); !lost.empty())
      run_failed({lost, "", flight_report(rank_, flight_, false, steady_nanoseconds())});
  }
} catch (const std::exception& error) {
  const RunFailure failure{str("rank ", rank_, " no longer hears the others: ", error.what())};
  stop(failure);
  run_failed(failure);
}

std::string ControlClient::listen() try {
  const auto message = connection_->receive(Clock::now() + 20ms);
  const int64_t silence = connection_->silence();
  if (message) handle(*message);
  if (const char* const problem = connection_->problem())
    return problem == kEnded ? died_text(0) : "rank 0 sends what is no message";
  if (timeout_ > 0) return silence > timeout_ ? silent_text(0, silence) : "";
  const std::lock_guard lock(mutex_);
  if (said_.empty() || std::min(silence, running_nanoseconds() - said_at_) < kVerdict) return "";
  return said_ + "; and rank 0 does not answer";
} catch (const std::exception& error) {
  return str("rank 0: ", error.what());
}

void ControlClient::handle(const Message& message) {
  WireReader wire(message.body);
  if (message.kind == ControlMessage::failure) return run_failed(decode_failure(wire));
  if (message.kind == ControlMessage::alive) return send(message.kind, message.body);
  const std::lock_guard lock(mutex_);
  if (message.kind == ControlMessage::met)
    for (texts_.emplace(); !wire.at_end();) texts_->push_back(wire.get<std::string>());
  if (message.kind == ControlMessage::started) started_ = true;
  if (message.kind == ControlMessage::over) over_ = true;
  changed_.notify_all();
}

namespace {

// A thread cannot be ended from outside, so the process exits.
[[noreturn]] void give_up(int rank, const RunFailure& failure, const char* function) {
  const std::string text = str("rank ", rank, ": communication failed: ", failure.why, "\n",
                               failure.report, "this rank did not end in time",
                               function ? "; it is in " : "", function ? function : "", "\n");
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  std::_Exit(4);
}

// What the thread of the rank's client looks after: that the launcher lives, and that the rank ends
// in time when the run has failed.
std::function<void(ControlClient&)> watch(const LaunchedRank& place, const RankOptions& options,
                                          const ProcessTransport& transport) {
  return [=, launcher = ::getppid(),
          failed_at = std::optional<std::chrono::steady_clock::time_point>()](
             ControlClient& others) mutable {
    const pid_t parent = ::getppid();
    if (std::exchange(launcher, parent) != parent && place.launcher != kNoLauncher)  // else a shell
      others.stop({str("the launcher of rank ", place.rank, " (", place.launcher,
                       ") has ended without ending its ranks")});
    if (!others.failed()) return;
    const auto now = std::chrono::steady_clock::now();
    if (!failed_at) failed_at = now;
    const char* const function = transport.inside();
    const bool hangs = function && !transport.returns;
    if ((hangs || options.timeout.count() > 0) &&
        now - *failed_at > (hangs ? 1s : options.timeout + options.grace))
      give_up(place.rank, others.failure(), function);
  };
}

}  // namespace

void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const ProcessTransport& transport,
                      const ProcessOptions& process) {
  require_input(place.size <= kMostRanks, place.size, " ranks are too many: one run has up to ",
                kMostRanks, " processes");
  set_last_failure_report("");
  // Processes start and threads run when the system allows, so very short timeouts would fail.
  const std::chrono::milliseconds least = options.timeout.count() > 0 ? 500ms : 0ms,
                                  timeout = std::max(options.timeout, least);
  EventStream events(place.rank);  // outlives the records that point into it
  ControlClient others({place, process, host_name(), boot_id(), std::max(timeout, 2 * least)},
                       timeout, watch(place, options, transport));
  others.wait_for_all();
  std::exception_ptr error;
  const auto failed = [&](const char* what, const std::string& detail) {
    error = std::current_exception();
    others.stop({str("rank ", place.rank, " stopped: ", what), detail});
  };
  std::unique_ptr<Communicator> communicator;
  try {
    communicator = transport.join(others, events);
    body(*communicator);
    communicator->finish();
  } catch (const std::exception& problem) {
    failed(problem.what(), detail_of(problem));
  } catch (...) {
    failed("an exception that is no std::exception", "");
  }
  communicator.reset();
  others.ended();
  const RunFailure failure = others.failure();
  set_last_failure_report(failure.report);
  if (failure.detail.empty() && error) std::rethrow_exception(error);
  throw_failure(failure);
}

}  // namespace zl
