#include "dist/processes/bootstrap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <sstream>
#include <thread>

#include "dist/processes/control_messages.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using State = Connection::State;

constexpr auto kAnswer = 2s;                        // between two processes that connect
constexpr uint64_t kLongHello = uint64_t(1) << 20;  // [B] of what they say before the run

std::string waited_text(int rank, const BootstrapOptions& options) {
  return str("rank ", rank, " waited ",
             human_time(std::chrono::nanoseconds(options.timeout).count()));
}

// "'seed=8', and rank 0 with 'seed=7'": the first line in which two texts differ.
std::string first_difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  for (;;) {
    std::string one = "nothing", other = "nothing";
    const bool any = bool(std::getline(a, one)) | bool(std::getline(b, other));
    if (!any || one != other)
      return str("'", printable(other), "', and rank 0 with '", printable(one), "'");
  }
}

// If the message that came is a failure, throws it.
void throw_failure_of(State state, const Message& message) {
  if (state != State::message || message.kind != uint8_t(ControlMessage::failure)) return;
  WireReader wire(message.body);
  const RunFailure failure = decode_failure(wire);
  throw_failure({printable(failure.why), failure.detail});
}

// Where rank 0 lets the other ranks in.
class Lobby {
 public:
  Lobby(const RankIdentity& self, const BootstrapOptions& options)
      : options_(options), ranks_(size_t(self.size)), connections_(ranks_.size()) {
    ranks_[0] = self;
    const bool local = options.address == "127.0.0.1" || options.address == "localhost";
    for (port_ = options.port; port_ < options.port + kPorts; ++port_) {
      listener_ = listen_on(port_, local ? Reach::this_machine : Reach::everywhere);
      if (listener_.open()) return;
    }
    throw CommunicationError(str("rank 0 finds no free port among ", options.port, " to ",
                                 port_ - 1, "; set ZEROLAB_PORT to the first of ", kPorts,
                                 " that are free, on all ranks"));
  }

  Connections wait_for_all() try {
    const Deadline deadline = deadline_in(options_.timeout);
    Deadline others_come = deadline;
    for (look(); missing_ != 0; look()) {
      const Deadline now = Clock::now();
      if (options_.interrupted && options_.interrupted()) throw CommunicationError(kInterrupted);
      if (died_ == 0) others_come = std::min<Deadline>(deadline, now + kAnswer);
      if (died_ != 0 && now > others_come)
        throw CommunicationError(died_text(std::countr_zero(died_)));
      if (now > deadline) throw CommunicationError(missing_text());
      std::this_thread::sleep_for(2ms);
    }
    require_distinct_gpus();
    tell_all(ControlMessage::started, "");
    return std::move(connections_);
  } catch (const std::exception& error) {
    const bool input = dynamic_cast<const InputError*>(&error);
    tell_all(ControlMessage::failure, encode(RunFailure{error.what(), input ? kInputFailure : ""}));
    throw;
  }

 private:
  struct Stranger {  // a process that has not said yet who it is
    std::unique_ptr<Connection> connection;
    Deadline until;
  };

  // Notices ranks that have died, and lets ranks in that have come.
  void look() {
    Message message, none;
    for (size_t r = 1; r < connections_.size(); ++r) {
      Connection* const one = connections_[r].get();
      const State state = one ? one->receive(message, Clock::now(), kLongHello) : State::waiting;
      if (state == State::waiting) continue;
      connections_[r].reset();
      throw_failure_of(state, message);
      missing_ |= uint64_t(1) << r;
      died_ |= uint64_t(1) << r;
    }
    for (Socket socket = accept_from(listener_); socket.open(); socket = accept_from(listener_))
      strangers_.push_back(
          {std::make_unique<Connection>(std::move(socket)), Clock::now() + kAnswer});
    std::erase_if(strangers_, [&](Stranger& one) {
      const State state = one.connection->receive(message, Clock::now(), kLongHello);
      other_version_ = other_version_ || state == State::other_version;
      // One that gave up waiting has disconnected, and will connect again.
      if (state == State::message && message.kind == uint8_t(ControlMessage::hello) &&
          one.connection->receive(none, Clock::now()) == State::waiting)
        admit(std::move(one.connection), message);
      return state != State::waiting || Clock::now() > one.until;
    });
  }

  // Disconnects a process that is not of this run. One that is and does not fit ends the run,
  // because no other can come in its place.
  void admit(std::unique_ptr<Connection> connection, const Message& message) {
    RankIdentity one;
    try {
      WireReader wire(message.body);
      one.rank = wire.get<int>(), one.size = wire.get<int>();
      for (std::string* text : {&one.run, &one.settings, &one.host, &one.machine, &one.gpu})
        *text = wire.text();
    } catch (const CommunicationError&) {
      return;
    }
    if (one.run != ranks_[0].run) return;
    if (const std::string problem = problem_of(one); !problem.empty()) {
      connection->send(uint8_t(ControlMessage::failure), encode({problem, kInputFailure}));
      throw InputError(problem);
    }
    ranks_[size_t(one.rank)] = one;
    connection->send(uint8_t(ControlMessage::alive), "");
    connections_[size_t(one.rank)] = std::move(connection);
    missing_ &= ~(uint64_t(1) << one.rank);
    died_ &= missing_;
  }

  std::string problem_of(const RankIdentity& one) const {
    const int size = int(ranks_.size());
    if (one.size != size)
      return str("rank ", one.rank, " was started as one of ", one.size,
                 " ranks, and rank 0 as one of ", size, "; give all the same WORLD_SIZE");
    if (one.rank < 1 || one.rank >= size)
      return str("a process says that it is rank ", one.rank, " of ", size);
    if (connections_[size_t(one.rank)])
      return str("two processes say that they are rank ", one.rank,
                 "; does each get its own RANK?");
    if (one.settings != ranks_[0].settings)
      return str("rank ", one.rank, " was started with ",
                 first_difference(ranks_[0].settings, one.settings),
                 "; start all ranks with the same settings and files");
    return "";
  }

  void require_distinct_gpus() const {
    std::map<std::array<std::string, 3>, int> users;
    for (const RankIdentity& one : ranks_) {
      if (one.gpu.empty()) continue;
      const auto [user, first] = users.try_emplace({one.host, one.machine, one.gpu}, one.rank);
      require_input(first, "ranks ", user->second, " and ", one.rank, " both use GPU ",
                    printable(one.gpu), " of ", printable(one.host),
                    ": NCCL needs one GPU per rank; start no more ranks than there are GPUs, let "
                    "them be threads (--backend threads), or test NCCL with zerolab launch "
                    "--share-gpu");
    }
  }

  std::string missing_text() const {
    return str(waited_text(0, options_), " at port ", port_, " for ", ranks_.size() - 1,
               ranks_.size() == 2 ? " other rank; missing: " : " other ranks; missing: ",
               ranks_text(missing_),
               other_version_
                   ? " (a zerolab of another version connected: rebuild it on all machines)"
                   : "",
               ". Were all started, with the same WORLD_SIZE, and can they reach ",
               options_.address, "? A slow start needs a larger --timeout");
  }

  void tell_all(ControlMessage kind, const std::string& body) {
    for (const auto& connection : connections_)
      if (connection) connection->send(uint8_t(kind), body);
  }

  const BootstrapOptions& options_;
  Socket listener_;
  int port_ = 0;
  std::vector<Stranger> strangers_;
  std::vector<RankIdentity> ranks_;  // those that have come
  Connections connections_;          // theirs
  // One bit per rank: it is not there; it came and left.
  uint64_t missing_ = ~uint64_t(1) & ~uint64_t(0) >> (64 - ranks_.size()), died_ = 0;
  bool other_version_ = false;
};

// Asks what listens at `port` to let this rank in, and returns when all have come. Null if it is
// not rank 0 of this run: then `why` says what it is.
std::unique_ptr<Connection> ask(const RankIdentity& self, const BootstrapOptions& options, int port,
                                Deadline until, std::string& why) {
  std::string refused;
  Socket socket = connect_to(options.address, port, until, refused);
  if (!socket.open()) {
    if (!why.starts_with("at port ")) why = refused;  // a program that was found says more
    return nullptr;
  }
  auto connection = std::make_unique<Connection>(std::move(socket));
  WireWriter hello;
  hello.put(self.rank).put(self.size).text(self.run).text(self.settings);
  hello.text(self.host).text(self.machine).text(self.gpu);
  connection->send(uint8_t(ControlMessage::hello), hello.take());
  // Rank 0 says why the others do not come before this is over.
  const int64_t began = running_nanoseconds(),
                most = std::chrono::nanoseconds(options.timeout + 500ms).count();
  int64_t waited = 0;
  Message message;
  State state = State::waiting;
  bool let_in = false;
  while (state == State::waiting &&
         (let_in ? waited < most || options.timeout.count() <= 0 : Clock::now() < until)) {
    if (options.interrupted && options.interrupted()) {
      if (let_in) connection->send(uint8_t(ControlMessage::failure), encode({kInterrupted}));
      throw CommunicationError(kInterrupted);
    }
    waited = running_nanoseconds() - began;
    state = connection->receive(message, Clock::now() + 20ms, kLongHello);
    if (state != State::message || message.kind != uint8_t(ControlMessage::alive)) continue;
    let_in = true;
    state = State::waiting;
  }
  if (let_in && state == State::ended) throw CommunicationError(died_text(0));
  if (let_in && state == State::waiting) throw CommunicationError(silent_text(0, waited));
  if (state == State::message && message.kind == uint8_t(ControlMessage::started))
    return connection;
  throw_failure_of(state, message);
  why = str("at port ", port,
            state == State::other_version
                ? " is a zerolab of another version; rebuild it on all machines"
            : state == State::foreign ? " is another program than zerolab"
            : state == State::waiting ? " is a program that does not answer"
                                      : " is a program that is not rank 0 of this run");
  return nullptr;
}

}  // namespace

Connections let_ranks_in(const RankIdentity& self, const BootstrapOptions& options) {
  return Lobby(self, options).wait_for_all();
}

std::unique_ptr<Connection> find_rank_0(const RankIdentity& self, const BootstrapOptions& options) {
  const Deadline deadline = deadline_in(options.timeout);
  std::string why;
  for (std::chrono::milliseconds pause = 20ms;;
       pause = std::min<std::chrono::milliseconds>(pause * 2, 500ms)) {
    for (int port = options.port; port < options.port + kPorts; ++port) {
      if (Clock::now() >= deadline && !why.empty()) break;
      if (options.interrupted && options.interrupted()) throw CommunicationError(kInterrupted);
      const Deadline until = std::min<Deadline>(deadline, Clock::now() + kAnswer);
      if (auto connection = ask(self, options, port, until, why)) return connection;
    }
    if (Clock::now() >= deadline)
      throw CommunicationError(str(waited_text(self.rank, options), " for rank 0 at ",
                                   options.address, ":", options.port, " (or the ", kPorts - 1,
                                   " ports after it): ", why,
                                   ". Was rank 0 started, and is MASTER_ADDR its machine? A "
                                   "firewall must let these ports through; a slow start needs a "
                                   "larger --timeout"));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace zl
