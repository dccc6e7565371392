#include "tutorials/exercises/grader/sandbox.h"

#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <vector>

namespace zl::exercises {
namespace {

constexpr int kUnprivileged = 65534;

#if defined(__x86_64__)
constexpr unsigned kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = AUDIT_ARCH_AARCH64;
#else
#error "the sandbox knows x86-64 and aarch64"
#endif

void check(int result, const char* what) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), what);
}

// Never above the limit that is there.
void limit(int resource, rlim_t value) {
  const auto which = __rlimit_resource_t(resource);
  rlimit now{};
  check(getrlimit(which, &now), "getrlimit");
  now.rlim_cur = now.rlim_max = std::min(value, now.rlim_max);
  check(setrlimit(which, &now), "setrlimit");
}

void drop_root() {
  if (getuid() != 0) return;
  const pid_t parent = getppid();
  // The root of a container may have no other users: then its rights end there too.
  if (setgroups(0, nullptr) != 0 && errno != EPERM) check(-1, "setgroups");
  if (setresgid(kUnprivileged, kUnprivileged, kUnprivileged) != 0 && errno != EINVAL)
    check(-1, "setresgid");
  if (setresuid(kUnprivileged, kUnprivileged, kUnprivileged) != 0 && errno != EINVAL)
    check(-1, "setresuid");
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of the user clears it
  if (getppid() != parent) _exit(1);
}

// What a computation with threads needs. Calls that only some machines have are named if so.
const std::vector<unsigned> kComputing = {
    __NR_read,
    __NR_write,
    __NR_readv,
    __NR_writev,
    __NR_close,
    __NR_fstat,
    __NR_lseek,
    __NR_ioctl,
    __NR_mmap,
    __NR_munmap,
    __NR_mprotect,
    __NR_mremap,
    __NR_madvise,
    __NR_brk,
    __NR_futex,
    __NR_exit,
    __NR_exit_group,
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_sched_getscheduler,
    __NR_sched_getparam,
    __NR_getpid,
    __NR_gettid,
    __NR_getppid,
    __NR_getuid,
    __NR_geteuid,
    __NR_getrusage,
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    __NR_getrandom,
    __NR_set_robust_list,
    __NR_set_tid_address,
    __NR_restart_syscall,
    __NR_getcpu,
    __NR_sysinfo,
    __NR_uname,
    __NR_membarrier,
#ifdef __NR_newfstatat
    __NR_newfstatat,  // of glibc's fstat()
#endif
#ifdef __NR_rseq
    __NR_rseq,
#endif
#ifdef __NR_poll
    __NR_poll,
#endif
    __NR_ppoll,
};

// What no program of a student may do, also where files are allowed.
const std::vector<unsigned> kForbidden = {
#ifdef __NR_fork
    __NR_fork,
    __NR_vfork,
    __NR_unlink,
    __NR_rename,
    __NR_rmdir,
    __NR_link,
    __NR_symlink,
    __NR_mkdir,
    __NR_mknod,
    __NR_renameat,
#endif
    __NR_execve,
    __NR_execveat,
    __NR_kill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    __NR_pidfd_send_signal,
    __NR_io_uring_setup,
    __NR_ptrace,
    __NR_process_vm_readv,
    __NR_process_vm_writev,
    __NR_socket,
    __NR_connect,
    __NR_bind,
    __NR_listen,
    __NR_accept,
    __NR_accept4,
    __NR_unlinkat,
    __NR_renameat2,
    __NR_mkdirat,
    __NR_mknodat,
    __NR_truncate,
    __NR_symlinkat,
    __NR_linkat,
    __NR_mount,
    __NR_umount2,
    __NR_setns,
    __NR_unshare,
    __NR_bpf,
    __NR_perf_event_open,
    __NR_setsid,
    __NR_setpgid,
};

class Filter {
 public:
  // Puts field `offset` of seccomp_data into the accumulator.
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, unsigned(offset)); }
  void load_number() { load(offsetof(seccomp_data, nr)); }
  // The low half of argument k: both machines are little-endian.
  void load_argument(int k) { load(offsetof(seccomp_data, args) + size_t(k) * 8); }
  void mask(unsigned bits) { add(BPF_ALU | BPF_AND | BPF_K, bits); }
  void end(unsigned action) { add(BPF_RET | BPF_K, action); }
  void end_if(unsigned value, unsigned action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    end(action);
  }
  void end_unless(unsigned value, unsigned action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    end(action);
  }
  void end_from(unsigned value, unsigned action) {
    add(BPF_JMP | BPF_JGE | BPF_K, value, 0, 1);
    end(action);
  }
  // The instructions of `body` run for this system call only; they end with end().
  template <class Body>
  void for_call(unsigned number, Body body) {
    add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0);
    const size_t jump = code_.size() - 1;
    body();
    code_[jump].jf = __u8(code_.size() - jump - 1);
  }
  void install() {
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    check(int(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)),
          "seccomp");
  }

 private:
  void add(int code, unsigned k, __u8 if_true = 0, __u8 if_false = 0) {
    code_.push_back({static_cast<__u16>(code), if_true, if_false, k});
  }
  std::vector<sock_filter> code_;
};

constexpr unsigned kAllow = SECCOMP_RET_ALLOW, kRefuse = SECCOMP_RET_ERRNO | EPERM,
                   kNoSuchCall = SECCOMP_RET_ERRNO | ENOSYS;

// `files`: only kForbidden is refused, for CUDA and sanitizers, which look into /proc.
void filter_calls(bool files) {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.end_unless(kMachine, SECCOMP_RET_KILL_PROCESS);
  filter.load_number();
#if defined(__x86_64__)
  filter.end_from(__X32_SYSCALL_BIT, kRefuse);  // the same calls under other numbers
#endif
  filter.end_if(__NR_clone3, kNoSuchCall);  // glibc then uses clone(), whose flags can be seen
  filter.for_call(__NR_clone, [&] {
    filter.load_argument(0);
    filter.mask(CLONE_VM | CLONE_THREAD);
    filter.end_if(CLONE_VM | CLONE_THREAD, kAllow);
    filter.end(kRefuse);
  });
  // abort() signals its own process.
  for (const unsigned number : {__NR_tgkill, __NR_tkill})
    filter.for_call(number, [&] {
      filter.load_argument(0);
      filter.end_if(unsigned(getpid()), kAllow);
      filter.end(kRefuse);
    });
  for (const unsigned number : files ? kForbidden : kComputing)
    filter.end_if(number, files ? kRefuse : kAllow);
  if (!files)
    filter.for_call(__NR_prctl, [&] {
      filter.load_argument(0);
      filter.end_if(PR_SET_NAME, kAllow);
      filter.end(kRefuse);
    });
  filter.end(files ? kAllow : kRefuse);
  filter.install();
}

}  // namespace

void enter_sandbox(const SandboxLimits& limits) {
  drop_root();
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
  limit(RLIMIT_CORE, 0);
  signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit fails instead
  limit(RLIMIT_FSIZE, rlim_t(std::max(limits.file, limits.cuda ? 256l << 20 : 0)));
  limit(RLIMIT_CPU, rlim_t(limits.seconds));
  if (!kSanitized && !limits.cuda) limit(RLIMIT_AS, rlim_t(limits.memory));
  filter_calls(limits.cuda || kSanitized);
}

}  // namespace zl::exercises
