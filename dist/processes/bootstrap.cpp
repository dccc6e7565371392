// Rank 0's side. The others': dist/processes/bootstrap_find.cpp.
#include "dist/processes/bootstrap.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "dist/processes/bootstrap_messages.h"
#include "dist/trace/flight_recorder.h"
#include "dist/trace/mismatch.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kWord = 1s;  // for words that fit into any buffer

// "'seed=8', and rank 0 with 'seed=7'": the first line in which two texts differ.
std::string first_difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  for (;;) {
    std::string one = "nothing", other = "nothing";
    const bool any = bool(std::getline(a, one)) | bool(std::getline(b, other));
    if (!any || one != other) return str("'", other, "', and rank 0 with '", one, "'");
  }
}

class Lobby {
 public:
  Lobby(const Newcomer& self, const Rendezvous& where)
      : self_(self), where_(where), arrived_(size_t(self.size)), ranks_(size_t(self.size)) {
    ranks_[0] = self;
    const Reach reach = where.address == "127.0.0.1" || where.address == "localhost"
                            ? Reach::this_machine
                            : Reach::everywhere;
    for (int port = where.port; port < where.port + kPorts && !listener_.open(); ++port)
      listener_ = listen_on(port_ = port, reach);
    if (!listener_.open())
      throw CommunicationError(str("rank 0 finds no free port among ", where.port, " to ",
                                   where.port + kPorts - 1, "; set ZEROLAB_PORT to the first of ",
                                   kPorts, " that are free, on all ranks"));
  }

  std::vector<Connection> wait_for_all(const std::string& welcome) {
    const Deadline deadline = deadline_in(where_.timeout);
    try {
      while (missing() != 0) {
        require_not_interrupted(where_);
        if (Clock::now() > deadline) throw CommunicationError(missing_text());
        const bool came = accept_one();
        forget_who_left();  // before one of them comes again
        const bool said = hear_strangers();
        if (!came && !said) std::this_thread::sleep_for(2ms);
      }
      require_own_gpus();
    } catch (const std::exception& error) {
      const bool input = dynamic_cast<const InputError*>(&error) != nullptr;
      for (const auto& connection : arrived_)
        if (connection) refuse(connection->socket, input, error.what());
      throw;
    }
    std::vector<Connection> connections(1);
    for (int r = 1; r < self_.size; ++r) {
      (void)send_message(arrived_[size_t(r)]->socket, uint8_t(Word::welcome), welcome, kWord);
      connections.push_back(std::move(*arrived_[size_t(r)]));
    }
    return connections;
  }

 private:
  struct Stranger {
    Connection connection;
    Deadline until;
  };

  uint64_t missing() const {
    uint64_t ranks = 0;
    for (int r = 1; r < self_.size; ++r)
      if (!arrived_[size_t(r)]) ranks |= uint64_t(1) << r;
    return ranks;
  }

  std::string missing_text() const {
    std::string text =
        str("rank 0 waited ", human_time(std::chrono::nanoseconds(where_.timeout).count()),
            " at port ", port_, " for ", self_.size - 1,
            self_.size == 2 ? " other rank; missing: " : " other ranks; missing: ",
            ranks_text(missing()));
    if (!departed_.empty()) text += str(" (", departed_, ")");
    if (other_version_)
      text += " (a zerolab of another version came: build it anew on all machines)";
    return text + str(". Were all started, with the same WORLD_SIZE, and do they reach ",
                      where_.address, "? A slow start needs a larger --timeout");
  }

  bool accept_one() {
    Socket socket = accept_from(listener_);
    if (!socket.open()) return false;
    if (send_greeting(socket, kWord))
      strangers_.push_back({{std::move(socket), {}}, Clock::now() + kFirstWord});
    return true;
  }

  bool hear_strangers() {
    bool said = false;
    for (auto one = strangers_.begin(); one != strangers_.end();) {
      Message message;
      const auto state = one->connection.reader.read(one->connection.socket, message, Clock::now());
      const bool waits = state == MessageReader::State::waiting && Clock::now() < one->until;
      if (waits) {
        ++one;
        continue;
      }
      said = true;
      if (state == MessageReader::State::other_version) other_version_ = true;
      Connection connection = std::move(one->connection);
      one = strangers_.erase(one);
      if (state == MessageReader::State::message && message.kind == uint8_t(Word::hello))
        admit(std::move(connection), message);
    }
    return said;
  }

  // Who is not of this run is sent away. Who is, and does not fit, ends the run: no other can come
  // in its place.
  void admit(Connection connection, const Message& message) {
    const Socket& socket = connection.socket;
    Newcomer one;
    try {
      WireReader wire(message.body);
      one.run = wire.text();
      one.rank = wire.get<int>(), one.size = wire.get<int>();
      one.settings = wire.text(), one.host = wire.text(), one.machine = wire.text(),
      one.gpu = wire.text();
    } catch (const CommunicationError&) {
      return;  // not one of ours
    }
    if (one.run != self_.run)
      return (void)send_message(socket, uint8_t(Word::other_run), "", kWord);
    if (const std::string problem = problem_of(one); !problem.empty()) {
      refuse(socket, true, problem);
      throw InputError(problem);
    }
    (void)send_message(socket, uint8_t(Word::here), "", kWord);
    arrived_[size_t(one.rank)] = std::move(connection);
    ranks_[size_t(one.rank)] = one;
  }

  std::string problem_of(const Newcomer& one) const {
    if (one.size != self_.size)
      return str("rank ", one.rank, " was started as one of ", one.size,
                 " ranks, and rank 0 as one of ", self_.size, "; give all the same WORLD_SIZE");
    if (one.rank < 1 || one.rank >= self_.size)
      return str("a process says that it is rank ", one.rank, " of ", self_.size);
    if (arrived_[size_t(one.rank)])
      return str("two processes say that they are rank ", one.rank,
                 "; does each get its own RANK?");
    if (one.settings != self_.settings)
      return str("rank ", one.rank, " was started with ",
                 first_difference(self_.settings, one.settings), "; start all ranks with the same");
    return "";
  }

  void refuse(const Socket& socket, bool input, const std::string& why) {
    (void)send_message(socket, uint8_t(Word::refused), WireWriter().put(input).text(why).take(),
                       kWord);
  }

  // A rank that went away may come again until the time is over.
  void forget_who_left() {
    for (int r = 1; r < self_.size; ++r) {
      auto& connection = arrived_[size_t(r)];
      Message message;
      if (!connection || connection->reader.read(connection->socket, message, Clock::now()) !=
                             MessageReader::State::ended)
        continue;
      connection.reset();
      departed_ = str("rank ", r, " came and went away again");
    }
  }

  void require_own_gpus() const {
    std::map<std::array<std::string, 3>, int> owners;
    for (const Newcomer& one : ranks_) {
      if (one.gpu.empty()) continue;
      const auto [owner, first] = owners.try_emplace({one.host, one.machine, one.gpu}, one.rank);
      require_input(first, "ranks ", owner->second, " and ", one.rank, " both use GPU ", one.gpu,
                    " of ", one.host,
                    ": NCCL needs one GPU per rank; start no more ranks than there are GPUs, or "
                    "let them be threads (--backend threads)");
    }
  }

  const Newcomer& self_;
  const Rendezvous& where_;
  Socket listener_;
  int port_ = 0;
  std::list<Stranger> strangers_;
  std::vector<std::optional<Connection>> arrived_;  // by rank
  std::vector<Newcomer> ranks_;
  std::string departed_;  // "rank 2 came and went away again"; "" if none did
  bool other_version_ = false;
};

}  // namespace

std::vector<Connection> receive_ranks(const Newcomer& self, const Rendezvous& where,
                                      const std::string& welcome) {
  return Lobby(self, where).wait_for_all(welcome);
}

}  // namespace zl
