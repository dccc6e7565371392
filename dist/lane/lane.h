// The second thread of a rank: it runs one task after another while the rank computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace zl {

// Only the rank's thread calls it. So a task's number orders it among all tasks.
class Lane {
 public:
  // A thread named "lane 3". Throws std::system_error if the system gives no more threads.
  explicit Lane(int rank);
  ~Lane() { close(); }
  Lane(const Lane&) = delete;

  // Returns the task's number: 1, 2, … A task must not throw. It is destroyed on the lane.
  int64_t add(std::function<void()> task);
  // Returns when the tasks up to `number` are done and destroyed.
  void join(int64_t number);
  bool is_done(int64_t number) const;
  // Ends the thread after its last task. add() must not be called any more.
  void close();

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable added_, done_;
  std::deque<std::function<void()>> tasks_;
  int64_t count_ = 0, completed_ = 0;
  bool ends_ = false;
  std::jthread thread_;  // the last member, because it uses the others
};

}  // namespace zl
