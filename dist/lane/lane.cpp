#include "dist/lane/lane.h"

#include <pthread.h>

#include <utility>

#include "tensor/error.h"

namespace zl {

Lane::Lane(int rank)
    : thread_([this, rank] {
        pthread_setname_np(pthread_self(), str("lane ", rank).c_str());
        run();
      }) {}

std::future<void> Lane::add(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  added_.notify_one();
  return tasks_.emplace_back(std::move(task)).get_future();
}

void Lane::close() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    added_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Lane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace zl
