// How processes find each other; here each is a thread with its own connections.
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "dist/communicator.h"
#include "tensor/error.h"
#include "tests/dist/processes/control_ranks.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using test::free_ports;

constexpr const char* kSettings = "steps=2\nseed=7\n";

struct Came {  // the result of one rank
  std::string error;
  bool input = false;
};

// As it was started, but with the place and time of `where`.
Came come(RankStart self, const RankStart& where) {
  self.place.address = where.place.address, self.place.port = where.place.port;
  self.timeout = where.timeout, self.options.interrupted = where.options.interrupted;
  try {
    ControlClient client(self, 10s);
    client.wait_for_all();
    client.ended();
    return {client.failure().why};
  } catch (const InputError& error) {
    return {error.what(), true};
  } catch (const CommunicationError& error) {
    return {error.what(), false};
  }
}

// All of them at once, in the order in which they are given.
std::vector<Came> come_all(const std::vector<RankStart>& ranks, const RankStart& where) {
  std::vector<Came> came(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] { came[i] = come(ranks[i], where); });
  }
  return came;
}

std::vector<RankStart> identities(int size) {
  std::vector<RankStart> all;
  for (int r = 0; r < size; ++r)
    all.push_back({.place = {.rank = r, .size = size, .run = "a"},
                   .options = {.settings = kSettings},
                   .host = "here"});
  return all;
}

RankStart at(int port, std::chrono::milliseconds timeout = 10s) {
  return test::start_at(port, timeout);
}

Socket connected(int port) {
  std::string why;
  for (;;)
    if (Socket socket = connect_to("127.0.0.1", port, deadline_in(1s), why); socket.open())
      return socket;
}

void send_bytes(const Socket& socket, const std::string& bytes) {
  (void)::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// The begin of a message of zerolab, of this version or another one.
std::string header(ControlMessage kind, uint64_t length, uint32_t version = 8) {
  return std::string("zerolab", 8) + to_bytes(version, kind, length);
}

// Another program: it accepts connections and sends `bytes` on each.
class Foreigner {
 public:
  Foreigner(int port, std::string bytes)
      : listener_(listen_on(port)), thread_([this, bytes](std::stop_token stop) {
          std::vector<Socket> kept;
          while (!stop.stop_requested()) {
            Socket socket = accept_from(listener_);
            if (!socket.open()) {
              std::this_thread::sleep_for(2ms);
              continue;
            }
            send_bytes(socket, bytes);
            kept.push_back(std::move(socket));
          }
        }) {}

 private:
  Socket listener_;
  std::jthread thread_;
};

}  // namespace

TEST_CASE("all ranks find rank 0 in any order, and the port is free afterwards", "[dist]") {
  const RankStart where = at(free_ports());
  for (const int size : {1, 2, 5}) {
    auto ranks = identities(size);
    std::ranges::reverse(ranks);  // rank 0 last
    for (const Came& one : come_all(ranks, where)) CHECK(one.error == "");
    CHECK(listen_on(where.place.port).open());
  }
}

TEST_CASE("a rank that is missing is named on all others", "[dist]") {
  auto ranks = identities(4);
  ranks.erase(ranks.begin() + 2);
  for (const Came& one : come_all(ranks, at(free_ports(), 300ms))) {
    CHECK_THAT(one.error,
               ContainsSubstring("rank 0 waited 300 ms") && ContainsSubstring("missing: rank 2"));
    CHECK_FALSE(one.input);
  }
}

// Rank 1 comes and goes, rank 3 never comes.
TEST_CASE("a rank that dies while others connect is named by all that have come", "[dist]") {
  for (const auto timeout : {0ms, 20'000ms}) {
    const RankStart where = at(free_ports(), timeout);
    RankStart one = identities(4)[1];
    one.place.port = where.place.port;
    const std::jthread rank_1([&] { (void)test::let_in(one); });
    for (const Came& one : come_all({identities(4)[0], identities(4)[2]}, where))
      CHECK_THAT(one.error, ContainsSubstring("rank 1 has died"));
  }
}

TEST_CASE("rank 0 is named if it is silent after it has let a rank in", "[dist]") {
  const int port = free_ports();
  const Foreigner silent(port, header(ControlMessage::alive, 0));
  RankStart rank_1 = identities(2)[1];
  rank_1.place.port = port, rank_1.timeout = 10s;
  ControlClient client(rank_1, 300ms);
  CHECK_THROWS_WITH(client.wait_for_all(),
                    ContainsSubstring("rank 0 has given no sign of life for "));
}

TEST_CASE("a stranger that is silent must go, and one that sends too much goes at once", "[dist]") {
  const RankStart where = at(free_ports(), 4s);
  const std::jthread rank_0([&] { (void)come(identities(2)[0], where); });
  const std::string huge = header(ControlMessage::hello, uint64_t(1) << 60),
                    long_hello = header(ControlMessage::hello, 8 << 20) + std::string(4 << 20, 'x');
  for (const auto& [bytes, most] :
       {std::pair{huge, 1000ms}, {long_hello, 1000ms}, {std::string(), 2800ms}}) {
    const Socket socket = connected(where.place.port);
    send_bytes(socket, bytes);
    const auto began = std::chrono::steady_clock::now();
    for (char c; ::recv(socket.fd(), &c, 1, 0) != 0;) std::this_thread::sleep_for(1ms);
    CHECK(std::chrono::steady_clock::now() - began < most);
  }
}

TEST_CASE("a socket that the system refuses is named by the system's reason", "[dist]") {
  const int port = free_ports();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{3, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  std::string why;
  const bool open = connect_to("127.0.0.1", port, deadline_in(1s), why).open();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_FALSE(open);
  CHECK(why == "Too many open files");
}

TEST_CASE("without rank 0 the others say where they looked", "[dist]") {
  const RankStart where = at(free_ports(), 300ms);
  for (const Came& one : come_all({identities(3)[1], identities(3)[2]}, where))
    CHECK_THAT(one.error,
               ContainsSubstring(str("waited 300 ms for rank 0 at 127.0.0.1:", where.place.port)) &&
                   ContainsSubstring("refused"));
  RankStart nowhere = where;
  nowhere.place.address = "no such host";
  CHECK_THAT(come(identities(2)[1], nowhere).error,
             ContainsSubstring("'no such host' has no address"));
}

TEST_CASE("ranks that were started differently are refused, all with the same error", "[dist]") {
  using Change = std::function<void(std::vector<RankStart>&)>;
  const std::pair<Change, const char*> rows[] = {
      {[](auto& ranks) { ranks[2].options.settings = "steps=2\nseed=8\n"; },
       "rank 2 was started with 'seed=8', and rank 0 with 'seed=7'"},
      {[](auto& ranks) { ranks[1].place.size = 4; },
       "rank 1 was started as one of 4 ranks, and rank 0 as one of 3"},
      {[](auto& ranks) { ranks[2].place.rank = 3; }, "a process says that it is rank 3 of 3"},
      {[](auto& ranks) { ranks[2] = ranks[1]; }, "two processes say that they are rank 1"},
      {[](auto& ranks) { ranks[0].options.gpu = ranks[2].options.gpu = "0000:62:00.0"; },
       "ranks 0 and 2 both use GPU 0000:62:00.0 of here: NCCL needs one GPU per rank; start no "
       "more ranks than there are GPUs, let them be threads (--backend threads), or test NCCL with "
       "zerolab launch --share-gpu"}};
  for (const auto& [change, says] : rows) {
    auto ranks = identities(3);
    ranks[1].options.gpu = "0000:61:00.0";
    change(ranks);
    for (const Came& one : come_all(ranks, at(free_ports(), 2s))) {
      CHECK_THAT(one.error, ContainsSubstring(says));
      CHECK(one.input);
    }
  }
}

TEST_CASE("the same GPU on two machines is two GPUs", "[dist]") {
  auto ranks = identities(2);
  for (RankStart& one : ranks) one.options.gpu = "0000:61:00.0";
  SECTION("by name") { ranks[1].host = "there"; }
  SECTION("in containers that have one name") { ranks[1].machine = "another start"; }
  for (const Came& one : come_all(ranks, at(free_ports()))) CHECK(one.error == "");
}

TEST_CASE("two runs that share their ports do not mix", "[dist]") {
  const RankStart where = at(free_ports());
  auto ranks = identities(3);
  for (RankStart other : identities(3)) {
    other.place.run = "b", other.options.settings = "other";
    ranks.insert(ranks.begin(), other);  // both orders of arrival
  }
  for (const Came& one : come_all(ranks, where)) CHECK(one.error == "");
}

TEST_CASE("other programs are recognized, on either side", "[dist]") {
  const int port = free_ports();
  SECTION("one is where rank 0 would listen, and is silent or not") {
    const Foreigner foreigner(port, GENERATE("220 ready\r\n", ""));
    for (const Came& one : come_all(identities(2), at(port))) CHECK(one.error == "");
  }
  SECTION("some come to rank 0") {
    std::atomic<bool> over{false};
    const std::string words[] = {"", "GET / HTTP/1.1\r\n\r\n",
                                 header(ControlMessage::hello, 5) + "hello"};
    std::jthread visitors([&] {
      std::vector<Socket> kept;
      for (int i = 0; !over; ++i) {
        std::string why;
        Socket socket = connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + 1s, why);
        std::this_thread::sleep_for(5ms);
        if (!socket.open()) continue;
        send_bytes(socket, words[i % 3]);
        kept.push_back(std::move(socket));
      }
    });
    const auto came = come_all(identities(3), at(port));
    over = true;
    for (const Came& one : came) CHECK(one.error == "");
  }
}

TEST_CASE("a zerolab of another version is named on both sides", "[dist]") {
  const std::string other = header(ControlMessage::alive, 0, 6);
  const int there = free_ports(), here = free_ports();
  const Foreigner rank_0(there, other);
  CHECK_THAT(come(identities(2)[1], at(there, 300ms)).error,
             ContainsSubstring("is a zerolab of another version; rebuild it on all machines"));
  const std::jthread rank_1([&] { send_bytes(connected(here), other); });
  CHECK_THAT(come(identities(2)[0], at(here, 300ms)).error,
             ContainsSubstring("missing: rank 1 (a zerolab of another version connected: rebuild"));
}

TEST_CASE("rank 0 says which ports are taken if all are", "[dist]") {
  const int port = free_ports();
  std::vector<Socket> taken;  // by this test, or another program
  for (int i = 0; i < kPorts; ++i) taken.push_back(listen_on(port + i));
  CHECK_THAT(come(identities(2)[0], at(port)).error,
             ContainsSubstring(str("no free port among ", port, " to ", port + kPorts - 1)));
}

TEST_CASE("an interrupt ends the waiting for ranks at once", "[dist]") {
  RankStart where = at(free_ports(), 60s);
  where.options.interrupted = [] { return true; };
  for (const int rank : {0, 1})
    CHECK_THAT(come(identities(2)[size_t(rank)], where).error, ContainsSubstring("interrupted"));
  // Also of a rank that waits for the answer of what listens there.
  const int port = free_ports();
  const Foreigner silent(port, "");
  RankStart soon = at(port, 60s);
  soon.options.interrupted = [after = deadline_in(100ms)] {
    return std::chrono::steady_clock::now() > after;
  };
  const auto began = std::chrono::steady_clock::now();
  CHECK_THAT(come(identities(2)[1], soon).error, ContainsSubstring("interrupted"));
  CHECK(std::chrono::steady_clock::now() - began < 1s);
  RankStart later = where;  // of a rank that has been let in; rank 2 never comes
  later.options.interrupted = [at = deadline_in(1s)] {
    return std::chrono::steady_clock::now() > at;
  };
  where.options.interrupted = {};
  const std::jthread rank_1([&] { (void)come(identities(3)[1], later); });
  CHECK(come(identities(3)[0], where).error == kInterrupted);
}

TEST_CASE("a rank of another run neither ends nor joins the run", "[dist]") {
  auto ranks = identities(3);
  ranks[2].place.run = "b", ranks[2].options.settings = "other";
  for (const Came& one : come_all(ranks, at(free_ports(), 300ms))) CHECK_FALSE(one.input);
}

TEST_CASE("text from other processes cannot control the terminal", "[dist]") {
  auto ranks = identities(2);
  ranks[1].options.settings = "steps=2\nseed=\x1b]0;evil\x07\xe2\x80\xae\x7f\n";
  for (const Came& one : come_all(ranks, at(free_ports(), 2s))) {
    CHECK_THAT(one.error, ContainsSubstring(R"('seed=\u001b]0;evil\u0007\u202e)"));
    for (const char c : one.error) CHECK((uint8_t(c) >= 0x20 && c != 0x7f));
  }
}

}  // namespace zl
