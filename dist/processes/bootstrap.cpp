#include "dist/processes/bootstrap.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "dist/trace/flight_recorder.h"
#include "dist/trace/mismatch.h"
#include "dist/wire.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/random.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kFirstMessage = 2s;  // until a process that connected must have sent it

// All but hello come from rank 0 and begin with its proof.
enum class Kind : uint8_t {
  hello = 100,  // the sender's proof and RankIdentity
  accepted,     // wait for the others
  refused,      // whether it is the user's input that is wrong, and why
  welcome       // all have come
};

// Shows that the sender knows the run's name, without the name itself.
uint64_t proof(const std::string& run, std::string_view sender) {
  return fnv1a(run, fnv1a(sender, fnv1a(run)));
}

void require_not_interrupted(const BootstrapOptions& options) {
  if (options.interrupted && options.interrupted())
    throw CommunicationError("interrupted while waiting for the ranks to connect");
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

// Rank 0's side.
class Lobby {
 public:
  Lobby(const RankIdentity& self, const BootstrapOptions& options)
      : self_(self), options_(options), ranks_(size_t(self.size)), connections_(ranks_.size()) {
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

  std::vector<std::unique_ptr<Connection>> wait_for_all(const std::string& welcome) {
    const Deadline deadline = deadline_in(options_.timeout);
    try {
      while (missing() != 0) {
        require_not_interrupted(options_);
        if (Clock::now() > deadline) throw CommunicationError(missing_text());
        if (Socket socket = accept_from(listener_); socket.open())
          strangers_.push_back(
              {std::make_unique<Connection>(std::move(socket)), Clock::now() + kFirstMessage});
        forget_departed();  // before one of them comes again
        if (!read_strangers()) std::this_thread::sleep_for(2ms);
      }
      require_distinct_gpus();
    } catch (const std::exception& error) {
      const bool input = dynamic_cast<const InputError*>(&error) != nullptr;
      for (const auto& connection : connections_)
        if (connection) refuse(*connection, input, error.what());
      throw;
    }
    for (const auto& connection : connections_)
      if (connection) send(*connection, Kind::welcome, answer().text(welcome));
    return std::move(connections_);
  }

 private:
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Deadline until;
  };

  uint64_t missing() const {
    uint64_t ranks = 0;
    for (int r = 1; r < self_.size; ++r)
      if (!connections_[size_t(r)]) ranks |= uint64_t(1) << r;
    return ranks;
  }

  std::string missing_text() const {
    std::string text =
        str("rank 0 waited ", human_time(std::chrono::nanoseconds(options_.timeout).count()),
            " at port ", port_, " for ", self_.size - 1,
            self_.size == 2 ? " other rank; missing: " : " other ranks; missing: ",
            ranks_text(missing()));
    if (departed_ > 0) text += str(" (rank ", departed_, " connected and disconnected again)");
    if (other_version_)
      text += " (a zerolab of another version connected: rebuild it on all machines)";
    return text + str(". Were all started, with the same WORLD_SIZE, and can they reach ",
                      options_.address, "? A slow start needs a larger --timeout");
  }

  // Returns whether any of them had sent something, or was too late.
  bool read_strangers() {
    bool any = false;
    for (auto one = strangers_.begin(); one != strangers_.end();) {
      Message message;
      const auto state = one->connection->receive(message, Clock::now());
      if (state == Connection::State::waiting && Clock::now() < one->until) {
        ++one;
        continue;
      }
      any = true;
      if (state == Connection::State::other_version) other_version_ = true;
      std::unique_ptr<Connection> connection = std::move(one->connection);
      one = strangers_.erase(one);
      if (state == Connection::State::message && message.kind == uint8_t(Kind::hello))
        admit(std::move(connection), message);
    }
    return any;
  }

  // Disconnects processes that are not of this run. One that is and does not fit ends the run,
  // because no other can come in its place.
  void admit(std::unique_ptr<Connection> connection, const Message& message) {
    RankIdentity one;
    try {
      WireReader wire(message.body);
      if (wire.get<uint64_t>() != proof(self_.run, "other rank")) return;
      one.rank = wire.get<int>(), one.size = wire.get<int>();
      for (std::string* text : {&one.settings, &one.host, &one.machine, &one.gpu})
        *text = wire.text();
    } catch (const CommunicationError&) {
      return;
    }
    if (const std::string problem = problem_of(one); !problem.empty()) {
      refuse(*connection, true, problem);
      throw InputError(problem);
    }
    send(*connection, Kind::accepted, answer());
    connections_[size_t(one.rank)] = std::move(connection);
    ranks_[size_t(one.rank)] = one;
  }

  std::string problem_of(const RankIdentity& one) const {
    if (one.size != self_.size)
      return str("rank ", one.rank, " was started as one of ", one.size,
                 " ranks, and rank 0 as one of ", self_.size, "; give all the same WORLD_SIZE");
    if (one.rank < 1 || one.rank >= self_.size)
      return str("a process says that it is rank ", one.rank, " of ", self_.size);
    if (connections_[size_t(one.rank)])
      return str("two processes say that they are rank ", one.rank,
                 "; does each get its own RANK?");
    if (one.settings != self_.settings)
      return str("rank ", one.rank, " was started with ",
                 first_difference(self_.settings, one.settings),
                 "; start all ranks with the same settings and files");
    return "";
  }

  WireWriter answer() const { return WireWriter().put(proof(self_.run, "rank 0")); }
  static void send(Connection& connection, Kind kind, WireWriter wire) {
    connection.send(uint8_t(kind), wire.take());
  }
  void refuse(Connection& connection, bool input, const std::string& why) const {
    send(connection, Kind::refused, answer().put(input).text(why));
  }

  // A rank that disconnected may come again until the time is over.
  void forget_departed() {
    for (int r = 1; r < self_.size; ++r) {
      auto& connection = connections_[size_t(r)];
      Message message;
      if (!connection || connection->receive(message, Clock::now()) != Connection::State::ended)
        continue;
      connection.reset();
      departed_ = r;
    }
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

  const RankIdentity& self_;
  const BootstrapOptions& options_;
  Socket listener_;
  int port_ = 0;
  std::list<Stranger> strangers_;
  std::vector<RankIdentity> ranks_;
  std::vector<std::unique_ptr<Connection>> connections_;  // of the ranks that came
  int departed_ = 0;
  bool other_version_ = false;
};

// The side of every other rank.
class Search {
 public:
  Search(const RankIdentity& self, const BootstrapOptions& options)
      : self_(self), options_(options), deadline_(deadline_in(options.timeout)) {}

  Welcome run() {
    for (std::chrono::milliseconds pause = 20ms;;
         pause = std::min<std::chrono::milliseconds>(pause * 2, 500ms)) {
      for (int port = options_.port; port < options_.port + kPorts && !unreachable_; ++port)
        if (auto connection = ask(port)) {
          if (std::optional<Welcome> welcome = wait_for_the_others(*connection)) {
            welcome->connection = std::move(connection);
            return std::move(*welcome);
          }
          why_ = "rank 0 was there and disconnected";
        }
      unreachable_ = false;
      require_time();
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  std::string waited() const {
    return str("rank ", self_.rank, " waited ",
               human_time(std::chrono::nanoseconds(options_.timeout).count()));
  }
  void require_time() const {
    require_not_interrupted(options_);
    if (Clock::now() < deadline_) return;
    throw CommunicationError(str(waited(), " for rank 0 at ", options_.address, ":", options_.port,
                                 " (or the ", kPorts - 1, " ports after it): ", why_,
                                 ". Was rank 0 started, and is MASTER_ADDR its machine? A firewall "
                                 "must let these ports through; a slow start needs a larger "
                                 "--timeout"));
  }

  // The connection if rank 0 of this run listens at `port` and accepts this rank.
  std::unique_ptr<Connection> ask(int port) {
    require_not_interrupted(options_);
    const auto began = Clock::now();
    const Deadline until = std::min<Deadline>(deadline_, began + kFirstMessage);
    std::string refused;
    Socket socket = connect_to(options_.address, port, until, refused);
    if (!socket.open()) {
      unreachable_ = Clock::now() - began > kFirstMessage / 2;  // the other ports take as long
      if (!found_any_) why_ = refused;
      return nullptr;
    }
    found_any_ = true;
    auto connection = std::make_unique<Connection>(std::move(socket));
    WireWriter hello;
    hello.put(proof(self_.run, "other rank")).put(self_.rank).put(self_.size);
    hello.text(self_.settings).text(self_.host).text(self_.machine).text(self_.gpu);
    connection->send(uint8_t(Kind::hello), hello.take());
    Message message;
    const auto state = connection->receive(message, until);
    if (state == Connection::State::message && is_from_rank_0(message)) {
      if (message.kind == uint8_t(Kind::refused)) throw_refusal(message);
      if (message.kind == uint8_t(Kind::accepted)) return connection;
    }
    why_ =
        state == Connection::State::other_version
            ? str("a zerolab of another version is at port ", port, "; rebuild it on all machines")
        : state == Connection::State::foreign
            ? str("another program than zerolab is at port ", port)
        : state == Connection::State::waiting
            ? str("the program at port ", port, " does not answer")
            : str("the program at port ", port, " is not rank 0 of this run");
    return nullptr;
  }

  bool is_from_rank_0(const Message& message) const {
    return message.body.size() >= sizeof(uint64_t) &&
           WireReader(message.body).get<uint64_t>() == proof(self_.run, "rank 0");
  }

  // Rank 0 has the same timeout and knows which ranks are missing, so this rank waits a little
  // longer. Returns none if rank 0 disconnects.
  std::optional<Welcome> wait_for_the_others(Connection& connection) const {
    const Deadline until = deadline_ == Deadline::max() ? deadline_ : deadline_ + 500ms;
    while (Clock::now() < until) {
      require_not_interrupted(options_);
      Message message;
      const auto state = connection.receive(message, Clock::now() + 50ms);
      if (state == Connection::State::waiting) continue;
      if (state != Connection::State::message || !is_from_rank_0(message)) return std::nullopt;
      if (message.kind == uint8_t(Kind::refused)) throw_refusal(message);
      if (message.kind == uint8_t(Kind::welcome)) {
        WireReader wire(message.body);
        (void)wire.get<uint64_t>();
        return Welcome{nullptr, wire.text()};
      }
    }
    throw CommunicationError(str(waited(),
                                 "; rank 0 is there, and still waits for other ranks. A "
                                 "slow start needs a larger --timeout"));
  }

  [[noreturn]] static void throw_refusal(const Message& message) {
    WireReader wire(message.body);
    (void)wire.get<uint64_t>();
    const bool input = wire.get<bool>();
    const std::string why = printable(wire.text());
    if (input) throw InputError(why);
    throw CommunicationError(why);
  }

  const RankIdentity& self_;
  const BootstrapOptions& options_;
  const Deadline deadline_;
  std::string why_;  // rank 0 was not found
  bool unreachable_ = false, found_any_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Connection>> accept_ranks(const RankIdentity& self,
                                                      const BootstrapOptions& options,
                                                      const std::string& welcome) {
  return Lobby(self, options).wait_for_all(welcome);
}

Welcome connect_to_rank_0(const RankIdentity& self, const BootstrapOptions& options) {
  return Search(self, options).run();
}

}  // namespace zl
