// A lock on an open file or folder against other processes.
#pragma once

namespace zl {

// Takes flock(2) on the descriptor; it lasts until that is closed. False if another process has it.
// A process that was killed a moment ago may still have it, so it is tried for two seconds. True
// also where the file system has no locks.
bool lock_against_other_processes(int file);

}  // namespace zl
