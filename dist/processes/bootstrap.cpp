#include "dist/processes/bootstrap.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <tuple>

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

}  // namespace

Lobby::Lobby(const RankIdentity& rank_0, const BootstrapOptions& options)
    : options_(options), came_{{0, rank_0}}, port_(options.port) {
  const bool local = options.address == "127.0.0.1" || options.address == "localhost";
  for (; port_ < options.port + kPorts; ++port_) {
    listener_ = listen_on(port_, local ? Reach::this_machine : Reach::everywhere);
    if (listener_.open()) return;
  }
  throw CommunicationError(str("rank 0 finds no free port among ", options.port, " to ", port_ - 1,
                               "; set ZEROLAB_PORT to the first of ", kPorts,
                               " that are free, on all ranks"));
}

std::string Lobby::look(const LetIn& let_in) {
  for (Socket socket = accept_from(listener_); socket.open(); socket = accept_from(listener_))
    strangers_.push_back(std::make_unique<Connection>(std::move(socket)));
  std::string problem;
  for (std::unique_ptr<Connection>& one : strangers_) {
    Message message;
    const State state = one->receive(message, Clock::now(), kLongHello);
    if (state == State::other_version) {
      other_version_ = true;
      one->send(uint32_t(ControlMessage::failure), "");  // by which it sees the same
    }
    if (state == State::message && message.kind == uint32_t(ControlMessage::hello)) {
      if (const std::string found = admit(one, message, let_in); problem.empty()) problem = found;
    }
    if (state != State::waiting || std::chrono::nanoseconds(one->silence()) > kAnswer)
      one = nullptr;
  }
  std::erase(strangers_, nullptr);
  return problem;
}

std::string Lobby::admit(std::unique_ptr<Connection>& stranger, const Message& hello,
                         const LetIn& let_in) {
  RankIdentity one;
  try {
    WireReader wire(hello.body);
    one.rank = wire.get<int>(), one.size = wire.get<int>();
    for (std::string* text : {&one.run, &one.settings, &one.host, &one.machine, &one.gpu})
      *text = wire.text();
  } catch (const CommunicationError&) {
    return "";
  }
  // One that gave up waiting has disconnected, and will connect again.
  Message none;
  if (one.run != came_.at(0).run || stranger->receive(none, Clock::now()) != State::waiting)
    return "";
  const std::string problem = problem_of(one);
  if (one.rank > 0 && one.rank < came_.at(0).size) came_.try_emplace(one.rank, one);
  if (problem.empty())
    let_in(one.rank, std::move(stranger));
  else
    stranger->send(uint32_t(ControlMessage::failure), encode(RunFailure{problem, kInputFailure}));
  return problem;
}

std::string Lobby::problem_of(const RankIdentity& one) const {
  const RankIdentity& rank_0 = came_.at(0);
  if (one.size != rank_0.size)
    return str("rank ", one.rank, " was started as one of ", one.size,
               " ranks, and rank 0 as one of ", rank_0.size, "; give all the same WORLD_SIZE");
  if (one.rank < 1 || one.rank >= one.size)
    return str("a process says that it is rank ", one.rank, " of ", one.size);
  if (came_.contains(one.rank))
    return str("two processes say that they are rank ", one.rank, "; does each get its own RANK?");
  if (one.settings != rank_0.settings)
    return str("rank ", one.rank, " was started with ",
               first_difference(rank_0.settings, one.settings),
               "; start all ranks with the same settings and files");
  const auto gpu = [](const RankIdentity& of) { return std::tie(of.host, of.machine, of.gpu); };
  for (const auto& [rank, other] : came_)
    if (!one.gpu.empty() && gpu(one) == gpu(other))
      return str("ranks ", std::min(rank, one.rank), " and ", std::max(rank, one.rank),
                 " both use GPU ", printable(one.gpu), " of ", printable(one.host),
                 ": NCCL needs one GPU per rank; start no more ranks than there are GPUs, let them "
                 "be threads (--backend threads), or test NCCL with zerolab launch --share-gpu");
  return "";
}

std::string Lobby::missing_text(uint64_t missing) const {
  const int others = came_.at(0).size - 1;
  return str(
      waited_text(0, options_), " at port ", port_, " for ", others,
      others == 1 ? " other rank; missing: " : " other ranks; missing: ", ranks_text(missing),
      other_version_ ? " (a zerolab of another version connected: rebuild it on all machines)" : "",
      ". Were all started, with the same WORLD_SIZE, and can they reach ", options_.address,
      "? A slow start needs a larger --timeout");
}

namespace {

void require_uninterrupted(const BootstrapOptions& options) {
  if (options.interrupted && options.interrupted()) throw CommunicationError(kInterrupted);
}

// Asks what listens at `port` to let this rank in. Null if it is not rank 0 of this run: then `why`
// says what it is.
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
  connection->send(uint32_t(ControlMessage::hello), hello.take());
  Message message;
  State state = State::waiting;
  while (state == State::waiting && Clock::now() < until) {
    require_uninterrupted(options);
    state =
        connection->receive(message, std::min<Deadline>(until, Clock::now() + 20ms), kLongHello);
  }
  if (state == State::message && message.kind == uint32_t(ControlMessage::alive)) return connection;
  if (state == State::message && message.kind == uint32_t(ControlMessage::failure)) {
    WireReader wire(message.body);
    throw InputError(printable(decode_failure(wire).why));
  }
  why = str("at port ", port,
            state == State::other_version
                ? " is a zerolab of another version; rebuild it on all machines"
            : state == State::foreign ? " is another program than zerolab"
            : state == State::waiting ? " is a program that does not answer"
                                      : " is a program that is not rank 0 of this run");
  return nullptr;
}

}  // namespace

std::unique_ptr<Connection> find_rank_0(const RankIdentity& self, const BootstrapOptions& options) {
  const Deadline deadline = deadline_in(options.timeout);
  std::string why;
  for (std::chrono::milliseconds pause = 20ms;;
       pause = std::min<std::chrono::milliseconds>(pause * 2, 500ms)) {
    for (int port = options.port; port < options.port + kPorts; ++port) {
      if (Clock::now() >= deadline && !why.empty()) break;
      require_uninterrupted(options);
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
