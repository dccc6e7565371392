// The second thread of a rank: it runs one task after another while the rank computes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace zl {

class Lane {
 public:
  // A thread named "lane 3". Throws std::system_error if the system gives no more threads.
  explicit Lane(int rank);
  ~Lane() { close(); }
  Lane(const Lane&) = delete;

  // The result is ready when the task and all before it have run; it has what the task threw.
  std::future<void> add(std::function<void()> task);
  // Ends the thread after its last task. add() must not be called any more.
  void close();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ends_ = false;
  std::jthread thread_;  // the last member, because it uses the others
};

}  // namespace zl
