// What the process that runs a student's code gives up before it does.
#pragma once

namespace zl::exercises {

// Sanitizers reserve terabytes of addresses, and make code several times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

struct SandboxLimits {
  long memory = 2l << 30;               // [B] of address space; not with sanitizers
  int seconds = kSanitized ? 600 : 60;  // of CPU time, of all ranks together
  // CUDA's driver opens files and reserves address space: it gets both, and may write 256 MiB.
  // A list of system calls stays forbidden, among them those for processes, connections and signals
  // to others. With sanitizers files are allowed too.
  bool cuda = false;
  long file = 0;  // [B] of a file that it writes, stdout among them; 0: none
};

// Root becomes the unprivileged user 65534, where the machine has it. Limits memory, CPU time and
// the size of written files; then no system call opens a file, starts a process or a connection, or
// signals another process: they fail with EPERM. Threads can be started. It cannot be undone.
// Throws std::system_error.
//
// This stops mistakes and students. It does not stop an attacker of the kernel.
void enter_sandbox(const SandboxLimits& limits);

}  // namespace zl::exercises
