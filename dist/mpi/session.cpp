#include "dist/mpi/session.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "dist/communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

struct Session {
  enum class State { none, starting, started, finishing, finished };
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::none;
  std::string problem;
};

// Never destroyed, because its thread may still be inside MPI when the program exits.
Session& session() {
  static Session* const only = new Session;
  return *only;
}

void set(Session::State state, const char* problem) {
  Session& s = session();
  const std::lock_guard lock(s.mutex);
  s.state = state;
  s.problem = problem ? problem : "";
  s.changed.notify_all();
}

void serve(const MpiApi& api) {
  pthread_setname_np(pthread_self(), "MPI");
  set(Session::State::started, api.init());
  Session& s = session();
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait(lock, [&] { return s.state == Session::State::finishing; });
  }
  set(Session::State::finished, api.finalize());
}

}  // namespace

void start_mpi(const MpiApi& api, const std::function<void()>& poll) {
  Session& s = session();
  std::unique_lock lock(s.mutex);
  if (s.state == Session::State::none) {
    s.state = Session::State::starting;
    std::thread(serve, std::cref(api)).detach();
  }
  while (s.state == Session::State::starting) {
    s.changed.wait_for(lock, 5ms);
    lock.unlock();
    poll();
    lock.lock();
  }
  if (!s.problem.empty()) throw CommunicationError(s.problem);
}

std::string finish_mpi() {
  Session& s = session();
  std::unique_lock lock(s.mutex);
  if (s.state != Session::State::started || !s.problem.empty()) return "";
  s.state = Session::State::finishing;
  s.changed.notify_all();
  const auto finished = [&] { return s.state == Session::State::finished; };
  if (!s.changed.wait_for(lock, 60s, finished))
    return "MPI_Finalize does not return: another rank has not come to its end";
  return s.problem;
}

}  // namespace zl
