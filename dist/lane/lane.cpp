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

int64_t Lane::add(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  added_.notify_one();
  return ++count_;
}

void Lane::join(int64_t number) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return completed_ >= number; });
}

bool Lane::is_done(int64_t number) const {
  std::lock_guard lock(mutex_);
  return completed_ >= number;
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
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
    ++completed_;
    done_.notify_one();
  }
}

}  // namespace zl
