// The side of every rank but 0.
#include <algorithm>
#include <optional>
#include <thread>

#include "dist/processes/bootstrap_messages.h"
#include "dist/trace/flight_recorder.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Search {
 public:
  Search(const Newcomer& self, const Rendezvous& where)
      : self_(self), where_(where), deadline_(deadline_in(where.timeout)) {}

  Welcome run() {
    for (auto pause = 20ms;; pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
      for (int port = where_.port; port < where_.port + kPorts; ++port) {
        std::optional<Welcome> welcome = knock(port);
        if (welcome) return std::move(*welcome);
        if (unreachable_) break;  // the other ports would take as long
      }
      require_time();
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  void require_time() const {
    require_not_interrupted(where_);
    if (Clock::now() < deadline_) return;
    throw CommunicationError(str("rank ", self_.rank, " waited ",
                                 human_time(std::chrono::nanoseconds(where_.timeout).count()),
                                 " for rank 0 at ", where_.address, ":", where_.port, " (or the ",
                                 kPorts - 1, " ports after it): ", why_,
                                 ". Was rank 0 started, and is MASTER_ADDR its machine? A firewall "
                                 "must let these ports through; a slow "
                                 "start needs a larger --timeout"));
  }

  Deadline at_most(std::chrono::milliseconds time) const {
    return std::min<Deadline>(deadline_, Clock::now() + time);
  }

  std::optional<Welcome> knock(int port) {
    require_not_interrupted(where_);
    unreachable_ = false;
    const auto began = Clock::now();
    std::string refused;
    Connection connection{connect_to(where_.address, port, at_most(kFirstWord), refused), {}};
    if (!connection.socket.open()) {
      unreachable_ = Clock::now() - began > kFirstWord / 2;
      if (!found_any_) why_ = refused;  // else who was found says more
      return std::nullopt;
    }
    found_any_ = true;
    WireWriter hello;
    hello.text(self_.run)
        .put(self_.rank)
        .put(self_.size)
        .text(self_.settings)
        .text(self_.host)
        .text(self_.machine)
        .text(self_.gpu);
    if (!send_greeting(connection.socket, 1s) ||
        !send_message(connection.socket, uint8_t(Word::hello), hello.take(), 1s))
      return std::nullopt;
    Message message;
    const auto state = connection.reader.read(connection.socket, message, at_most(kFirstWord));
    const bool ours = state == MessageReader::State::message &&
                      message.kind >= uint8_t(Word::here) && message.kind <= uint8_t(Word::refused);
    if (!ours) {  // also a socket that the system has connected to itself
      why_ = state == MessageReader::State::other_version
                 ? str("at port ", port,
                       " there is a zerolab of another version; build it anew on all machines")
             : state == MessageReader::State::foreign
                 ? str("port ", port, " belongs to a program that is no rank of zerolab")
                 : str("who listens at port ", port, " says nothing");
      return std::nullopt;
    }
    if (message.kind == uint8_t(Word::other_run)) {
      why_ = str("at port ", port, " there is rank 0 of another run");
      return std::nullopt;
    }
    if (message.kind == uint8_t(Word::refused)) throw_refusal(message);
    return wait_for_the_others(std::move(connection));
  }

  // Rank 0 has the same time, and says who is missing; so this rank waits a little longer.
  std::optional<Welcome> wait_for_the_others(Connection connection) {
    const Deadline until = deadline_ == Deadline::max() ? deadline_ : deadline_ + 500ms;
    while (Clock::now() < until) {
      require_not_interrupted(where_);
      Message message;
      const auto state = connection.reader.read(connection.socket, message, Clock::now() + 50ms);
      if (state == MessageReader::State::waiting) continue;
      if (state != MessageReader::State::message) break;
      if (message.kind == uint8_t(Word::refused)) throw_refusal(message);
      if (message.kind == uint8_t(Word::welcome))
        return Welcome{std::move(connection), message.body};
    }
    if (Clock::now() >= until)
      throw CommunicationError(str("rank ", self_.rank, " waited ",
                                   human_time(std::chrono::nanoseconds(where_.timeout).count()),
                                   "; rank 0 is there, and still waits for other ranks. A slow "
                                   "start needs a larger --timeout"));
    why_ = "rank 0 was there and went away again";
    return std::nullopt;
  }

  [[noreturn]] static void throw_refusal(const Message& message) {
    WireReader wire(message.body);
    const bool input = wire.get<bool>();
    const std::string why = wire.text();
    if (input) throw InputError(why);
    throw CommunicationError(why);
  }

  const Newcomer& self_;
  const Rendezvous& where_;
  const Deadline deadline_;
  std::string why_;
  bool unreachable_ = false, found_any_ = false;  // of the last knock; whether anybody listens
};

}  // namespace

Welcome find_rank_0(const Newcomer& self, const Rendezvous& where) {
  return Search(self, where).run();
}

}  // namespace zl
