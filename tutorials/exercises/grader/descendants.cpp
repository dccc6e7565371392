#include "tutorials/exercises/grader/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace zl::exercises {
namespace {

// Of all guards of this process.
struct Registry {
  std::mutex mutex;           // held while a guard forks, and while it looks for descendants
  std::set<pid_t> children;   // of guards
  std::set<pid_t> strangers;  // children that were there before the first guard
  int was_reaper = 0;
};

Registry& registry() {
  static Registry all;
  return all;
}

// The parent of each process of this machine that can be seen. Those that have ended count only if
// this process must wait for them.
std::map<pid_t, pid_t> parents() {
  namespace fs = std::filesystem;
  std::map<pid_t, pid_t> of;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t id = pid_t(std::strtol(entry->path().filename().c_str(), nullptr, 10));
    if (id <= 0) continue;
    std::ifstream in(entry->path() / "stat");
    std::string stat;  // without its end if the process ends now: getline() does not throw then
    std::getline(in, stat, '\0');
    const size_t name_end = stat.rfind(')');  // "12 (its name) S 7 …"
    if (name_end == std::string::npos || name_end + 4 > stat.size()) continue;
    const auto parent = pid_t(std::strtol(stat.c_str() + name_end + 4, nullptr, 10));
    const bool has_ended = stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
    if (!has_ended || parent == getpid()) of[id] = parent;
  }
  return of;
}

// The descendants of `child`, and the orphans that became children of this process, with theirs.
std::set<pid_t> descendants(pid_t child, const Registry& all) {
  const std::map<pid_t, pid_t> of = parents();
  std::set<pid_t> found;
  for (size_t before = size_t(-1); before != found.size();) {
    before = found.size();
    for (const auto& [id, parent] : of) {
      const bool orphan =
          parent == getpid() && all.children.count(id) == 0 && all.strangers.count(id) == 0;
      if (orphan || parent == child || found.count(parent) != 0) found.insert(id);
    }
  }
  return found;
}

// A process may start another one while the list is read: until there is none.
void kill_descendants(pid_t child, const Registry& all) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    const std::set<pid_t> found = descendants(child, all);
    if (found.empty()) return;
    for (const pid_t id : found) {
      kill(id, SIGKILL);
      waitpid(id, nullptr, WNOHANG);  // fails for those that are not our children yet
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

DescendantGuard::DescendantGuard(const std::function<pid_t()>& start) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.children.empty()) {
    prctl(PR_GET_CHILD_SUBREAPER, &all.was_reaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    all.strangers.clear();
    for (const auto& [id, parent] : parents())
      if (parent == getpid()) all.strangers.insert(id);
  }
  try {
    id_ = start();
  } catch (...) {
    if (all.children.empty()) prctl(PR_SET_CHILD_SUBREAPER, all.was_reaper);
    throw;
  }
  all.children.insert(id_);
}

DescendantGuard::~DescendantGuard() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  kill(id_, SIGSTOP);  // it must start no others while they are killed
  kill_descendants(id_, all);
  kill(id_, SIGKILL);
  waitpid(id_, nullptr, 0);
  kill_descendants(-1, all);  // those whose parent has ended meanwhile
  all.children.erase(id_);
  if (all.children.empty()) prctl(PR_SET_CHILD_SUBREAPER, all.was_reaper);
}

}  // namespace zl::exercises
