// The processes that a child of this one has started, also those whose parent has ended.
#pragma once

#include <sys/types.h>

#include <functional>

namespace zl::exercises {

// Keeps track of one child. As long as there is a DescendantGuard, processes whose parent ends
// become children of this process, where the destructor finds them.
class DescendantGuard {
 public:
  // `start` forks and returns the id of the child. Nothing else may fork meanwhile.
  explicit DescendantGuard(const std::function<pid_t()>& start);
  DescendantGuard(const DescendantGuard&) = delete;
  // Kills the child and its descendants and waits for them.
  ~DescendantGuard();

  pid_t id() const { return id_; }

 private:
  pid_t id_ = -1;
};

}  // namespace zl::exercises
